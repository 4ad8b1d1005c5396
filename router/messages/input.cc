#include "router/messages/input.h"

#include <optional>

#include "router/core/result.h"

namespace quire::messages {
namespace {

using json::Value;

constexpr std::string_view kBilling = "x-anthropic-billing-header:";

FieldError CheckText(const json::Object& object, std::string_view key, const std::string& where) {
  const Value* value = json::Find(object, key);
  if (value != nullptr && value->is_string()) return std::nullopt;
  return InvalidField(where + "." + std::string(key), "must be a text");
}

ApiError NotServed(const std::string& where, std::string_view type, std::string_view served) {
  return InvalidField(where, "blocks of type \"" + std::string(type.substr(0, 64)) +
                                 "\" are not served here; " + std::string(served));
}

// A block, which has a type.
FieldError AsBlock(const Value& block, const std::string& where, const json::Object*& object) {
  if (!block.is_object()) return InvalidField(where, "must be an object with a type");
  object = &block.get_object();
  return CheckText(*object, "type", where);
}

class Blocks {
 public:
  Blocks(const RequestLimits& limits, Conversation& out, Names& referred)
      : limits_(limits), out_(out), referred_(referred) {}

  FieldError Message(const Value& message, const std::string& where) {
    if (!message.is_object()) return InvalidField(where, "must be an object with role and content");
    const json::Object& object = message.get_object();
    const std::string_view role = TextMember(object, "role");
    if (role != "user" && role != "assistant" && role != "system") {
      return InvalidField(where + ".role", "must be \"user\", \"assistant\" or \"system\"");
    }
    role_ = role;
    const Value* content = json::Find(object, "content");
    if (content != nullptr && content->is_string()) {
      Text(json::View(content->get_string()));
      return out_.Check("messages", limits_);
    }
    if (content == nullptr || !content->is_array()) {
      return InvalidField(where + ".content", "must be a text or a list of blocks");
    }
    size_t index = 0;
    for (const Value& block : content->get_array()) {
      const std::string place = where + ".content[" + std::to_string(index++) + "]";
      if (auto problem = Block(block, place)) return problem;
      if (auto problem = out_.Check("messages", limits_)) return problem;
    }
    return std::nullopt;
  }

 private:
  void Text(std::string_view text) {
    if (role_ == "assistant") {
      out_.Assistant(text);
    } else if (role_ == "system") {
      out_.Instruct(text);
    } else {
      out_.User(text);
    }
  }

  FieldError Block(const Value& block, const std::string& where) {
    const json::Object* object = nullptr;
    if (auto problem = AsBlock(block, where, object)) return problem;
    const std::string_view type = TextMember(*object, "type");
    if (type == "text") {
      if (auto problem = CheckText(*object, "text", where)) return problem;
      Text(TextMember(*object, "text"));
      return std::nullopt;
    }
    if (type == "redacted_thinking") return std::nullopt;  // nothing that a model here could read
    if (type == "tool_use" && role_ == "assistant") return ToolUse(*object, where);
    if (type == "thinking" && role_ == "assistant") return Thinking(*object, where);
    if (type == "tool_result" && role_ == "user") return ToolResult(*object, where);
    return NotServed(where, type,
                     role_ == "assistant"
                         ? "an assistant's message takes text, thinking and tool_use"
                         : "a user's message takes text and tool_result");
  }

  FieldError ToolUse(const json::Object& object, const std::string& where) {
    for (const std::string_view key : {"id", "name"}) {
      if (auto problem = CheckText(object, key, where)) return problem;
    }
    const Value* input = json::Find(object, "input");
    if (input == nullptr || !input->is_object()) {
      return InvalidField(where + ".input", "must be an object");
    }
    out_.Call(TextMember(object, "id"), TextMember(object, "name"), json::Serialize(*input));
    return std::nullopt;
  }

  FieldError Thinking(const json::Object& object, const std::string& where) {
    if (auto problem = CheckText(object, "thinking", where)) return problem;
    const std::string_view thought = TextMember(object, "thinking");
    if (!thought.empty()) {
      out_.Think(thought);
    } else {
      out_.Think(UnpackThought(TextMember(object, "signature")));
    }
    return std::nullopt;
  }

  FieldError ToolResult(const json::Object& object, const std::string& where) {
    if (auto problem = CheckText(object, "tool_use_id", where)) return problem;
    std::string text;
    const Value* content = json::Find(object, "content");
    if (content != nullptr && content->is_string()) {
      text = std::string(json::View(content->get_string()));
    } else if (content != nullptr && content->is_array()) {
      if (auto problem = ResultBlocks(content->get_array(), where, text)) return problem;
    } else if (content != nullptr) {
      return InvalidField(where + ".content", "must be a text or a list of blocks");
    }
    bool is_error = false;
    if (const Value* value = json::Find(object, "is_error")) {
      if (auto problem = ReadBool(*value, where + ".is_error", is_error)) return problem;
    }
    if (is_error && text.empty()) text = "error";
    out_.Result(TextMember(object, "tool_use_id"), text);
    return std::nullopt;
  }

  FieldError ResultBlocks(const json::Array& blocks, const std::string& where, std::string& text) {
    size_t index = 0;
    for (const Value& block : blocks) {
      const std::string place = where + ".content[" + std::to_string(index++) + "]";
      const json::Object* object = nullptr;
      if (auto problem = AsBlock(block, place, object)) return problem;
      const std::string_view type = TextMember(*object, "type");
      std::string_view key = "text";
      if (type == "tool_reference") {
        key = "tool_name";
      } else if (type != "text") {
        return NotServed(place, type, "the result of a tool takes text");
      }
      if (auto problem = CheckText(*object, key, place)) return problem;
      if (type == "tool_reference") referred_.emplace(TextMember(*object, key));
      if (!text.empty()) text += '\n';
      text += TextMember(*object, key);
    }
    return std::nullopt;
  }

  const RequestLimits& limits_;
  Conversation& out_;
  Names& referred_;
  std::string_view role_;  // of the message that is read
};

FieldError ReadTool(const json::Object& tool, const std::string& where, std::string& out) {
  const Value* schema = json::Find(tool, "input_schema");
  if (schema == nullptr || !schema->is_object()) {
    return InvalidField(where + ".input_schema", "must be a JSON schema, an object");
  }
  bool strict = false;
  if (const Value* value = json::Find(tool, "strict")) {
    if (auto problem = ReadBool(*value, where + ".strict", strict)) return problem;
  }
  out += out.empty() ? "[" : ",";
  out += "{\"type\":\"function\",\"function\":{\"name\":";
  json::AppendQuoted(TextMember(tool, "name"), out);
  const std::string_view description = TextMember(tool, "description");
  if (!description.empty()) {
    out += ",\"description\":";
    json::AppendQuoted(description, out);
  }
  out += ",\"parameters\":" + json::Serialize(*schema);
  if (strict) out += ",\"strict\":true";
  out += "}}";
  return std::nullopt;
}

}  // namespace

FieldError ReadSystem(const Value& value, Conversation& out) {
  if (value.is_string()) {
    out.Instruct(json::View(value.get_string()));
    return std::nullopt;
  }
  if (!value.is_array()) return InvalidField("system", "must be a text or a list of text blocks");
  size_t index = 0;
  for (const Value& block : value.get_array()) {
    const std::string where = "system[" + std::to_string(index++) + "]";
    const json::Object* object = nullptr;
    if (auto problem = AsBlock(block, where, object)) return problem;
    const std::string_view type = TextMember(*object, "type");
    if (type != "text") return NotServed(where, type, "system takes text");
    if (auto problem = CheckText(*object, "text", where)) return problem;
    const std::string_view text = TextMember(*object, "text");
    if (!text.starts_with(kBilling)) out.Instruct(text);
  }
  return std::nullopt;
}

FieldError ReadMessages(const Value& value, const RequestLimits& limits, Conversation& out,
                        Names& referred) {
  if (!value.is_array()) return InvalidField("messages", "must be a list of messages");
  const json::Array& list = value.get_array();
  if (list.empty()) return InvalidField("messages", "must hold at least one message");
  if (auto problem = CheckMessageCount(list.size(), limits)) return problem;
  Blocks blocks(limits, out, referred);
  size_t index = 0;
  for (const Value& message : list) {
    const std::string where = "messages[" + std::to_string(index++) + "]";
    if (auto problem = blocks.Message(message, where)) return problem;
  }
  return std::nullopt;
}

FieldError ReadTools(const Value& value, const Names& referred, ToolSet& out) {
  if (!value.is_array()) return InvalidField("tools", "must be a list of tools");
  size_t index = 0;
  for (const Value& one : value.get_array()) {
    const std::string where = "tools[" + std::to_string(index++) + "]";
    if (!one.is_object())
      return InvalidField(where, "must be an object with name and input_schema");
    const json::Object& tool = one.get_object();
    const std::string_view name = TextMember(tool, "name");
    if (name.empty() || name.size() > kMaxNameBytes) {
      return InvalidField(where + ".name",
                          "must be a name of 1 to " + std::to_string(kMaxNameBytes) + " bytes");
    }
    if (out.names.contains(name) || out.left_out.contains(name)) {
      return InvalidField(where + ".name",
                          "\"" + std::string(name.substr(0, 64)) + "\" came before");
    }
    const std::string_view type = TextMember(tool, "type");
    bool deferred = false;
    if (const Value* defer = json::Find(tool, "defer_loading")) {
      if (auto problem = ReadBool(*defer, where + ".defer_loading", deferred)) return problem;
    }
    if ((!type.empty() && type != "custom") || (deferred && !referred.contains(name))) {
      out.left_out.emplace(name);
      continue;
    }
    if (auto problem = ReadTool(tool, where, out.json)) return problem;
    out.names.emplace(name);
  }
  if (!out.json.empty()) out.json += ']';
  return std::nullopt;
}

FieldError ReadToolChoice(const Value& value, const ToolSet& tools, ToolUse& out) {
  if (!value.is_object()) return InvalidField("tool_choice", "must be an object with a type");
  const json::Object& choice = value.get_object();
  const std::string_view type = TextMember(choice, "type");
  if (const Value* disable = json::Find(choice, "disable_parallel_tool_use")) {
    bool disabled = false;
    if (auto p = ReadBool(*disable, "tool_choice.disable_parallel_tool_use", disabled)) return p;
    out.parallel = !disabled;
  }
  if (type == "auto") {
    out.choice = ToolChoice::kAuto;
  } else if (type == "none") {
    out.choice = ToolChoice::kNone;
  } else if (type == "any") {
    if (tools.names.empty()) {
      return InvalidField("tool_choice", "\"any\" needs a tool in tools that is served here");
    }
    out.choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    const std::string_view name = TextMember(choice, "name");
    const std::string quoted = "\"" + std::string(name.substr(0, 64)) + "\" ";
    if (tools.left_out.contains(name)) {
      return InvalidField("tool_choice.name",
                          quoted +
                              "is a tool that the model is not shown: it runs at Anthropic, or "
                              "is deferred and no result refers to it");
    }
    if (!tools.names.contains(name)) {
      return InvalidField("tool_choice.name", quoted + "is no tool of tools");
    }
    out.choice = ToolChoice::kNamed;
    out.name = std::string(name);
  } else {
    return InvalidField("tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  return std::nullopt;
}

}  // namespace quire::messages
