#include "cli/watch/shown_fields.h"

#include <algorithm>

#include "cli/format.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxNameBytes = 80;

}  // namespace

std::string Text(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  const json::String* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? "" : PlainText(std::string(json::View(*text)), kMaxNameBytes);
}

double Number(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  return value == nullptr ? -1 : json::AsDouble(*value, name).value_or(-1);
}

std::string Count(const json::Object& object, std::string_view name) {
  return NumberText(std::max(Number(object, name), 0.0));
}

}  // namespace quire::cli
