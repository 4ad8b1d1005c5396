#include "router/chat/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "router/core/result.h"

namespace quire {

using json::Value;

namespace {

// A wrong type, as common/json words it.
ApiError Bad(std::string_view name, const absl::Status& status) {
  return ErrorFromStatus(status, name);
}

}  // namespace

absl::StatusOr<json::Value> ReadJson(std::string_view text, const RequestLimits& limits,
                                     size_t outer_depth) {
  json::Limits json_limits;
  json_limits.max_depth = limits.max_json_depth - std::min(outer_depth, limits.max_json_depth);
  json_limits.max_values = limits.max_json_values;
  json_limits.hold = limits.hold;
  absl::StatusOr<json::Value> value = json::Parse(text, json_limits);
  if (limits.counters == nullptr) return value;
  if (absl::IsResourceExhausted(value.status())) limits.counters->json_depth.Add();
  if (absl::IsOutOfRange(value.status())) limits.counters->json_values.Add();
  return value;
}

FieldError ReadBody(std::string_view body, const RequestLimits& limits, Value& out) {
  auto value = ReadJson(body, limits);
  if (absl::IsUnavailable(value.status())) return TooManyLargeRequests();
  if (!value.ok() || !value->is_object()) {
    const std::string why = value.ok() ? "" : ": " + StatusMessage(value.status());
    return ApiError{ApiCode::kInvalidArgument, "the body must be a JSON object" + why, "", 0};
  }
  out = std::move(*value);
  return std::nullopt;
}

FieldError ChargeMore(const RequestLimits& limits, size_t bytes) {
  if (limits.hold == nullptr || limits.hold->TryResize(limits.hold->bytes() + bytes)) {
    return std::nullopt;
  }
  return TooManyLargeRequests();
}

std::string_view TextMember(const json::Object& object, std::string_view key) {
  const Value* value = json::Find(object, key);
  return value != nullptr && value->is_string() ? json::View(value->get_string())
                                                : std::string_view();
}

FieldError ReadBool(const Value& value, std::string_view name, bool& out) {
  auto read = json::AsBool(value, name);
  if (!read.ok()) return Bad(name, read.status());
  out = *read;
  return std::nullopt;
}

FieldError ReadFloat(const Value& value, std::string_view name, std::optional<float>& out) {
  auto read = json::AsDouble(value, name);
  if (!read.ok()) return Bad(name, read.status());
  out = static_cast<float>(*read);
  if (!std::isfinite(*out)) return InvalidField(name, "must be a finite number");
  return std::nullopt;
}

FieldError ReadInt(const Value& value, std::string_view name, std::optional<int32_t>& out) {
  auto read = json::AsInt(value, name);
  if (!read.ok()) return Bad(name, read.status());
  if (*read < std::numeric_limits<int32_t>::min() || *read > std::numeric_limits<int32_t>::max()) {
    return InvalidField(name, "must be in [-2147483648, 2147483647]");
  }
  out = static_cast<int32_t>(*read);
  return std::nullopt;
}

FieldError ReadString(const Value& value, std::string_view name, std::string& out) {
  auto read = json::AsString(value, name);
  if (!read.ok()) return Bad(name, read.status());
  out = std::string(*read);
  return std::nullopt;
}

FieldError ReadName(const Value& value, std::string_view name, std::string& out) {
  if (value.is_string() && value.get_string().size() > kMaxNameBytes) {
    return InvalidField(name, "must have at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  return ReadString(value, name, out);
}

FieldError ReadTokenIds(const Value& value, std::string_view name, std::vector<TokenId>& out) {
  auto list = json::AsArray(value, name);
  if (!list.ok()) return Bad(name, list.status());
  out.clear();
  out.reserve((*list)->size());
  for (const Value& element : **list) {
    auto id = json::AsInt(element, name);
    if (!id.ok()) return InvalidField(name, "must be a list of token ids, each an integer");
    if (*id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return InvalidField(name, "token id " + std::to_string(*id) + " is outside [0, 2147483647]");
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return std::nullopt;
}

FieldError ReadStrings(const Value& value, std::string_view name, std::vector<std::string>& out) {
  out.clear();
  if (value.is_string()) {
    if (!value.get_string().empty()) out.emplace_back(json::View(value.get_string()));
    return std::nullopt;
  }
  if (!value.is_array()) return InvalidField(name, "must be a string or a list of strings");
  for (const Value& element : value.get_array()) {
    if (!element.is_string()) return InvalidField(name, "must be a string or a list of strings");
    out.emplace_back(json::View(element.get_string()));
  }
  return std::nullopt;
}

FieldError ReadUint64(const Value& value, std::string_view name, uint64_t& out) {
  if (value.is_uint64()) {
    out = value.get_uint64();
    return std::nullopt;
  }
  auto read = json::AsInt(value, name);
  if (!read.ok()) return Bad(name, read.status());
  // Clients draw seeds from signed ranges too; the bits are the seed.
  out = static_cast<uint64_t>(*read);
  return std::nullopt;
}

}  // namespace quire
