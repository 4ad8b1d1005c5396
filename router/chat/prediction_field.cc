#include "router/chat/prediction_field.h"

#include "common/utf8.h"
#include "router/core/result.h"

namespace quire {
namespace {

using json::Value;

FieldError ReadParts(const json::Array& parts, const std::string& where, std::string& out) {
  for (const Value& part : parts) {
    if (!part.is_object()) {
      return InvalidField(where, R"(each part must be {"type": "text", "text": "some text"})");
    }
    const Value* type = json::Find(part.get_object(), "type");
    const Value* text = json::Find(part.get_object(), "text");
    if (type == nullptr || !type->is_string() || json::View(type->get_string()) != "text") {
      return InvalidField(where, "only parts of type \"text\" are served");
    }
    if (text == nullptr || !text->is_string()) {
      return InvalidField(where, "a part of type text needs its text");
    }
    out += json::View(text->get_string());
  }
  return std::nullopt;
}

}  // namespace

FieldError ReadPrediction(const Value& value, std::string_view name, std::string& out) {
  const Value* type = value.is_object() ? json::Find(value.get_object(), "type") : nullptr;
  if (type == nullptr || !type->is_string() || json::View(type->get_string()) != "content") {
    return InvalidField(name, R"(must be {"type": "content", "content": "the expected text"})");
  }
  const std::string where = std::string(name) + ".content";
  const Value* content = json::Find(value.get_object(), "content");
  if (content != nullptr && content->is_string()) {
    out = json::View(content->get_string());
  } else if (content != nullptr && content->is_array()) {
    if (auto problem = ReadParts(content->get_array(), where, out)) return problem;
  } else {
    return InvalidField(where, "must be a text or a list of text parts");
  }
  if (!IsValidUtf8(out)) return InvalidField(where, "is not valid UTF-8");
  return std::nullopt;
}

}  // namespace quire
