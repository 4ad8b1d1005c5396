#include "router/chat/message_fields.h"

#include "router/chat/tool_fields.h"
#include "router/core/result.h"

namespace quire {
namespace {

using json::Value;

constexpr size_t kMaxMessages = 16'384;

FieldError ReadPart(const Value& part, const std::string& where, const Value*& text) {
  if (!part.is_object()) {
    return InvalidField(where, "each part must be a text, or an object with type and text");
  }
  const Value* type = json::Find(part.get_object(), "type");
  text = json::Find(part.get_object(), "text");
  if (!type || !type->is_string()) return InvalidField(where, "each part needs a type");
  if (json::View(type->get_string()) != "text") {
    return InvalidField(where, "parts of type \"" +
                                   std::string(json::View(type->get_string()).substr(0, 64)) +
                                   "\" are not served; only \"text\" is");
  }
  if (!text || !text->is_string()) return InvalidField(where, "a part of type text needs its text");
  return std::nullopt;
}

FieldError FlattenContent(const Value& content, const std::string& where, std::string& out) {
  bool first = true;
  for (const Value& part : content.get_array()) {
    const Value* text = &part;  // a text on its own, as vLLM accepts it
    if (!part.is_string()) {
      if (auto problem = ReadPart(part, where, text)) return problem;
    }
    if (!first) out += '\n';
    first = false;
    out += json::View(text->get_string());
  }
  return std::nullopt;
}

FieldError CheckMessage(Value& message, const std::string& where, RequestLimits& limits) {
  if (!message.is_object()) return InvalidField(where, "must be an object with role and content");
  json::Object& object = message.get_object();
  const Value* role = json::Find(object, "role");
  if (!role || !role->is_string() || role->get_string().empty()) {
    return InvalidField(where + ".role", "must be a string such as \"user\"");
  }
  if (auto problem = ReadCalls(object, where, limits)) return problem;
  auto content = object.find("content");
  if (content == object.end() || content->value().is_null()) {
    if (!json::Find(object, "tool_calls")) return InvalidField(where + ".content", "is missing");
    // As vLLM does: templates that join a text to it would fail, and others would print "None".
    object["content"] = "";
    return std::nullopt;
  }
  if (content->value().is_array()) {
    std::string flat;
    if (auto problem = FlattenContent(content->value(), where + ".content", flat)) return problem;
    content->value() = json::BoostView(flat);
  } else if (!content->value().is_string()) {
    return InvalidField(where + ".content", "must be a string or a list of text parts");
  }
  return std::nullopt;
}

}  // namespace

FieldError ReadMessages(Value& value, RequestLimits limits, std::string& out) {
  if (!value.is_array()) return InvalidField("messages", "must be a list of messages");
  if (value.get_array().empty()) return InvalidField("messages", "must hold at least one message");
  if (value.get_array().size() > kMaxMessages) {
    return InvalidField("messages", "has more than " + std::to_string(kMaxMessages) + " entries");
  }
  size_t index = 0;
  for (Value& message : value.get_array()) {
    const std::string where = "messages[" + std::to_string(index++) + "]";
    if (auto problem = CheckMessage(message, where, limits)) return problem;
  }
  out = json::Serialize(value);
  value = nullptr;  // only its text is needed
  return std::nullopt;
}

}  // namespace quire
