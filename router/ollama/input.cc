#include "router/ollama/input.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "router/chat/message_fields.h"
#include "router/core/result.h"

namespace quire::ollama {
namespace {

using json::Value;

// A call whose result has not come yet.
struct OpenCall {
  std::string id, name;
};

class Turns {
 public:
  FieldError Read(const Value& message, const std::string& where, json::Object& out) {
    if (!message.is_object()) return InvalidField(where, "must be an object with role and content");
    const json::Object& object = message.get_object();
    if (const Value* images = json::Find(object, "images")) {
      if (auto problem = RefuseImages(*images, where + ".images")) return problem;
    }
    if (const Value* role = json::Find(object, "role")) out["role"] = *role;
    const Value* content = json::Find(object, "content");
    out["content"] = content == nullptr || content->is_null() ? Value("") : *content;
    if (const std::string_view thought = TextMember(object, "thinking"); !thought.empty()) {
      out["reasoning"] = json::BoostView(thought);
    }
    const Value* calls = json::Find(object, "tool_calls");
    if (calls != nullptr && !calls->is_null()) {
      if (auto problem = Calls(*calls, where + ".tool_calls", out)) return problem;
    }
    if (TextMember(object, "role") == "tool") Result(object, out);
    return std::nullopt;
  }

 private:
  FieldError Calls(const Value& calls, const std::string& where, json::Object& out) {
    if (!calls.is_array()) return InvalidField(where, "must be a list of calls");
    json::Array made;
    for (const Value& call : calls.get_array()) {
      const std::string place = where + "[" + std::to_string(made.size()) + "]";
      const Value* function =
          call.is_object() ? json::Find(call.get_object(), "function") : nullptr;
      if (function == nullptr || !function->is_object()) {
        return InvalidField(place, "must be {\"function\": {\"name\": …, \"arguments\": {…}}}");
      }
      OpenCall open;
      open.id = TextMember(call.get_object(), "id");
      open.name = TextMember(function->get_object(), "name");
      if (open.name.empty()) return InvalidField(place + ".function.name", "must be a text");
      if (open.id.empty()) open.id = "call_" + std::to_string(count_);
      ++count_;
      json::Object named;
      named["name"] = open.name;
      const Value* arguments = json::Find(function->get_object(), "arguments");
      named["arguments"] = arguments == nullptr ? Value(json::Object()) : *arguments;
      json::Object one;
      one["id"] = open.id;
      one["type"] = "function";
      one["function"] = std::move(named);
      made.push_back(std::move(one));
      open_.push_back(std::move(open));
    }
    if (!made.empty()) out["tool_calls"] = std::move(made);
    return std::nullopt;
  }

  void Result(const json::Object& object, json::Object& out) {
    const std::string_view id = TextMember(object, "tool_call_id");
    std::string_view name = TextMember(object, "tool_name");
    auto call = std::find_if(open_.begin(), open_.end(), [&](const OpenCall& one) {
      return id.empty() ? one.name == name : one.id == id;
    });
    if (call == open_.end() && id.empty() && name.empty()) call = open_.begin();
    if (!id.empty()) out["tool_call_id"] = json::BoostView(id);
    if (call != open_.end()) {
      out["tool_call_id"] = call->id;
      if (name.empty()) name = call->name;
    }
    if (!name.empty()) out["name"] = json::BoostView(name);
    if (call != open_.end()) open_.erase(call);
  }

  std::deque<OpenCall> open_;
  size_t count_ = 0;
};

}  // namespace

FieldError RefuseImages(const Value& value, std::string_view name) {
  if (value.is_null() || (value.is_array() && value.get_array().empty())) return std::nullopt;
  return InvalidField(name, "pictures are not served; send text alone");
}

FieldError ReadTurns(Value& value, const RequestLimits& limits, std::string& out) {
  if (!value.is_array()) return InvalidField("messages", "must be a list of messages");
  if (auto problem = CheckMessageCount(value.get_array().size(), limits)) return problem;
  Turns turns;
  Value made = json::Array();
  for (const Value& message : value.get_array()) {
    const std::string where = "messages[" + std::to_string(made.get_array().size()) + "]";
    json::Object one;
    if (auto problem = turns.Read(message, where, one)) return problem;
    made.get_array().push_back(std::move(one));
  }
  value = nullptr;
  return ReadMessages(made, limits, out);
}

}  // namespace quire::ollama
