#include "router/ollama/input.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "router/chat/message_fields.h"
#include "router/core/result.h"

namespace quire::ollama {
namespace {

using json::Value;

struct OpenCall {
  std::string id, name;
};

// Calls whose results have not come yet, in their order. Each result finds its call without a look
// at the others: a body has hundreds of thousands of both.
class OpenCalls {
 public:
  void Add(OpenCall call) {
    const size_t place = calls_.size();
    const OpenCall& kept = calls_.emplace_back(std::move(call));
    taken_.push_back(false);
    by_id_.emplace(kept.id, place);
    by_name_.emplace(kept.name, place);
  }
  // Takes the first call of that id, or, without an id, of that name, or, without both, of all.
  const OpenCall* Take(std::string_view id, std::string_view name) {
    if (!id.empty()) return Take(by_id_, id);
    if (!name.empty()) return Take(by_name_, name);
    while (first_ < calls_.size() && taken_[first_]) ++first_;
    return first_ < calls_.size() ? Taken(first_) : nullptr;
  }

 private:
  using Places = std::multimap<std::string_view, size_t>;  // equal keys in the order of the calls

  const OpenCall* Taken(size_t place) {
    taken_[place] = true;
    return &calls_[place];
  }
  const OpenCall* Take(Places& places, std::string_view key) {
    for (auto at = places.find(key); at != places.end() && at->first == key;) {
      const size_t place = at->second;
      at = places.erase(at);  // taken, now or by its other key
      if (!taken_[place]) return Taken(place);
    }
    return nullptr;
  }

  std::deque<OpenCall> calls_;  // its elements stay in place
  std::vector<bool> taken_;
  Places by_id_, by_name_;
  size_t first_ = 0;  // all before it are taken
};

class Turns {
 public:
  FieldError Read(Value& message, const std::string& where, json::Object& out) {
    if (!message.is_object()) return InvalidField(where, "must be an object with role and content");
    json::Object& object = message.get_object();
    if (const Value* images = json::Find(object, "images")) {
      if (auto problem = RefuseImages(*images, where + ".images")) return problem;
    }
    if (const Value* role = json::Find(object, "role")) out["role"] = *role;
    const auto content = object.find("content");
    const bool says = content != object.end() && !content->value().is_null();
    out["content"] = says ? std::move(content->value()) : Value("");
    if (const std::string_view thought = TextMember(object, "thinking"); !thought.empty()) {
      out["reasoning"] = json::BoostView(thought);
    }
    const auto calls = object.find("tool_calls");
    if (calls != object.end() && !calls->value().is_null()) {
      if (auto problem = Calls(calls->value(), where + ".tool_calls", out)) return problem;
    }
    if (TextMember(object, "role") == "tool") Result(object, out);
    return std::nullopt;
  }

 private:
  FieldError Calls(Value& calls, const std::string& where, json::Object& out) {
    if (!calls.is_array()) return InvalidField(where, "must be a list of calls");
    json::Array made;
    for (Value& call : calls.get_array()) {
      const std::string place = where + "[" + std::to_string(made.size()) + "]";
      Value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
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
      Value* arguments = function->get_object().if_contains("arguments");
      named["arguments"] = arguments == nullptr ? Value(json::Object()) : std::move(*arguments);
      json::Object one;
      one["id"] = open.id;
      one["type"] = "function";
      one["function"] = std::move(named);
      made.push_back(std::move(one));
      open_.Add(std::move(open));
    }
    if (!made.empty()) out["tool_calls"] = std::move(made);
    return std::nullopt;
  }

  void Result(const json::Object& object, json::Object& out) {
    const std::string_view id = TextMember(object, "tool_call_id");
    std::string_view name = TextMember(object, "tool_name");
    const OpenCall* call = open_.Take(id, name);
    if (!id.empty()) out["tool_call_id"] = json::BoostView(id);
    if (call != nullptr) {
      out["tool_call_id"] = call->id;
      if (name.empty()) name = call->name;
    }
    if (!name.empty()) out["name"] = json::BoostView(name);
  }

  OpenCalls open_;
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
  for (Value& message : value.get_array()) {
    const std::string where = "messages[" + std::to_string(made.get_array().size()) + "]";
    json::Object one;
    if (auto problem = turns.Read(message, where, one)) return problem;
    made.get_array().push_back(std::move(one));
  }
  value = nullptr;
  return ReadMessages(made, limits, out);
}

}  // namespace quire::ollama
