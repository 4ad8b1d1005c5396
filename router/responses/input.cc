#include "router/responses/input.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "router/core/result.h"
#include "router/responses/tools.h"

namespace quire::responses {
namespace {

using json::Value;

// What an item that a reference brings becomes: a message, with a thought under three names, and
// an item of the conversation that is kept.
constexpr size_t kCopiesOfItem = 5;

FieldError CheckText(const json::Object& object, std::string_view key, const std::string& where) {
  const Value* value = json::Find(object, key);
  if (value != nullptr && value->is_string()) return std::nullopt;
  return InvalidField(where + "." + std::string(key), "must be a text");
}

FieldError ReadPart(const Value& part, const std::string& where, std::string_view& text) {
  if (!part.is_object()) return InvalidField(where, "must be an object with a type");
  const json::Object& object = part.get_object();
  const std::string_view type = TextMember(object, "type");
  std::string_view key = "text";
  if (type == "refusal") {
    key = "refusal";
  } else if (type != "input_text" && type != "output_text" && type != "text" &&
             type != "reasoning_text" && type != "summary_text") {
    return InvalidField(where, "parts of type \"" + std::string(type.substr(0, 64)) +
                                   "\" are not served; only text is, as \"input_text\", "
                                   "\"output_text\" or \"refusal\"");
  }
  if (auto problem = CheckText(object, key, where)) return problem;
  text = TextMember(object, key);
  return std::nullopt;
}

// A string, or a list of parts, which are joined by newlines.
FieldError ReadContent(const Value* content, const std::string& where, std::string& out) {
  if (content == nullptr) return InvalidField(where, "is missing");
  if (content->is_string()) {
    out = std::string(json::View(content->get_string()));
    return std::nullopt;
  }
  if (!content->is_array()) return InvalidField(where, "must be a text or a list of parts");
  size_t index = 0;
  for (const Value& part : content->get_array()) {
    std::string_view text;
    const std::string place = where + "[" + std::to_string(index++) + "]";
    if (auto problem = ReadPart(part, place, text)) return problem;
    if (!out.empty()) out += '\n';
    out += text;
  }
  return std::nullopt;
}

// It may also stand without a type.
bool IsReference(const json::Object& object) {
  const std::string_view type = TextMember(object, "type");
  return type == "item_reference" || (type.empty() && json::Find(object, "id") != nullptr &&
                                      json::Find(object, "role") == nullptr);
}

// Items of answers have ids that derive from their response's id and their place in it.
struct ItemPlace {
  std::string response;
  size_t index = 0;
};

std::optional<ItemPlace> PlaceOf(std::string_view id) {
  const size_t first = id.find('_');
  const size_t last = id.rfind('_');
  if (first == std::string_view::npos || last <= first) return std::nullopt;
  ItemPlace place{"resp_" + std::string(id.substr(first + 1, last - first - 1))};
  const char* const end = id.data() + id.size();
  const auto read = std::from_chars(id.data() + last + 1, end, place.index);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return place;
}

class Items {
 public:
  Items(const RequestLimits& limits, KeptItems& kept, Conversation& out)
      : limits_(limits), kept_(kept), out_(out) {}

  FieldError Read(const Value& item, const std::string& where) {
    if (!item.is_object()) return InvalidField(where, "must be an object");
    if (!IsReference(item.get_object())) return ReadItself(item.get_object(), where);
    const std::string_view id = TextMember(item.get_object(), "id");
    FieldError problem;
    const Value* kept = kept_.Find(id, problem);
    if (problem) return problem;
    if (kept != nullptr) return ReadItself(kept->get_object(), where);
    return InvalidField(
        where, "refers to \"" + std::string(id.substr(0, 128)) +
                   (kept_.keeps() ? "\", an item of no response that is kept here: send the item "
                                    "itself"
                                  : "\", an item of an earlier response, and no responses are kept "
                                    "here (--responses-store): send the item itself"));
  }

 private:
  FieldError ReadItself(const json::Object& object, const std::string& where) {
    const std::string_view type = TextMember(object, "type");
    if (type == "message" || (type.empty() && json::Find(object, "role") != nullptr)) {
      return Message(object, where);
    }
    if (type == "function_call") return FunctionCall(object, where);
    if (type == "custom_tool_call") return CustomCall(object, where);
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return Output(object, where);
    }
    if (type == "reasoning") return Reasoning(object, where);
    return InvalidField(where + ".type",
                        "items of type \"" + std::string(type.substr(0, 64)) +
                            "\" are not served; \"message\", \"function_call\", "
                            "\"custom_tool_call\", their outputs and \"reasoning\" are");
  }

  FieldError Message(const json::Object& object, const std::string& where) {
    std::string text;
    if (auto p = ReadContent(json::Find(object, "content"), where + ".content", text)) return p;
    const std::string_view role = TextMember(object, "role");
    if (role == "user") {
      out_.User(text);
    } else if (role == "assistant") {
      out_.Assistant(text);
    } else if (role == "system" || role == "developer") {
      out_.Instruct(text);
    } else {
      return InvalidField(where + ".role",
                          "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    }
    return std::nullopt;
  }

  // What no JSON parser reads stays a text: the model wrote it like that.
  FieldError FunctionCall(const json::Object& object, const std::string& where) {
    for (const std::string_view key : {"call_id", "name", "arguments"}) {
      if (auto problem = CheckText(object, key, where)) return problem;
    }
    const std::string_view text = TextMember(object, "arguments");
    constexpr size_t kDepth = 6;  // of the arguments in the messages
    std::string arguments = "{}";
    if (!text.empty()) {
      const auto read = ReadJson(text, limits_, kDepth);
      if (absl::IsUnavailable(read.status())) return TooManyLargeRequests();
      if (absl::IsResourceExhausted(read.status()) || absl::IsOutOfRange(read.status())) {
        return InvalidField(where + ".arguments", StatusMessage(read.status()));
      }
      limits_.max_json_values -= std::min(limits_.max_json_values, json::Measure(text).values);
      arguments.clear();
      if (read.ok()) {
        arguments = json::Serialize(*read);
      } else {
        json::AppendQuoted(text, arguments);
      }
    }
    out_.Call(TextMember(object, "call_id"),
              ShownName(TextMember(object, "namespace"), TextMember(object, "name")), arguments);
    return std::nullopt;
  }

  FieldError CustomCall(const json::Object& object, const std::string& where) {
    for (const std::string_view key : {"call_id", "name", "input"}) {
      if (auto problem = CheckText(object, key, where)) return problem;
    }
    out_.Call(TextMember(object, "call_id"),
              ShownName(TextMember(object, "namespace"), TextMember(object, "name")),
              CustomArguments(TextMember(object, "input")));
    return std::nullopt;
  }

  FieldError Output(const json::Object& object, const std::string& where) {
    if (auto problem = CheckText(object, "call_id", where)) return problem;
    std::string text;
    if (auto p = ReadContent(json::Find(object, "output"), where + ".output", text)) return p;
    out_.Result(TextMember(object, "call_id"), text);
    return std::nullopt;
  }

  // The thought itself, else what PackThought made of it, else what stands for it.
  FieldError Reasoning(const json::Object& object, const std::string& where) {
    std::string text;
    if (const Value* content = json::Find(object, "content")) {
      if (auto problem = ReadContent(content, where + ".content", text)) return problem;
    }
    if (text.empty()) text = UnpackThought(TextMember(object, "encrypted_content"));
    const Value* summary = json::Find(object, "summary");
    if (text.empty() && summary != nullptr) {
      if (auto problem = ReadContent(summary, where + ".summary", text)) return problem;
    }
    out_.Think(text);
    return std::nullopt;
  }

  RequestLimits limits_;  // what is left of the body's values
  KeptItems& kept_;
  Conversation& out_;
};

}  // namespace

const Value* KeptItems::Output(const std::string& response, FieldError& problem) {
  const auto known = outputs_.find(response);
  if (known != outputs_.end()) return &known->second;
  const std::shared_ptr<const KeptResponse> kept = keeping_.Find(response);
  if (kept == nullptr) return nullptr;
  const std::string& items = kept->turn.output;
  problem = ChargeMore(limits_, items.size());
  if (problem) return nullptr;
  absl::StatusOr<Value> list = ReadJson("[" + items + "]", limits_);
  if (!list.ok()) {
    problem = absl::IsUnavailable(list.status())
                  ? TooManyLargeRequests()
                  : InvalidField("input", StatusMessage(list.status()));
    return nullptr;
  }
  return &outputs_.emplace(response, *std::move(list)).first->second;
}

const Value* KeptItems::Find(std::string_view id, FieldError& problem) {
  const std::optional<ItemPlace> place = PlaceOf(id);
  if (!place || Output(place->response, problem) == nullptr) return nullptr;
  const Value* item = Found(id);
  if (item == nullptr) return nullptr;
  const size_t bytes = json::Serialize(*item).size();
  bytes_ += bytes;
  if (bytes_ > limits_.max_prompt_bytes) {
    problem = PastLimit("input", "--max-prompt-bytes", limits_.max_prompt_bytes,
                        limits_.counters ? &limits_.counters->prompt_bytes : nullptr);
    return nullptr;
  }
  problem = ChargeMore(limits_, kCopiesOfItem * bytes);
  return problem ? nullptr : item;
}

const Value* KeptItems::Found(std::string_view id) const {
  const std::optional<ItemPlace> place = PlaceOf(id);
  if (!place) return nullptr;
  const auto output = outputs_.find(place->response);
  if (output == outputs_.end()) return nullptr;
  const json::Array& list = output->second.get_array();
  if (place->index >= list.size() || !list[place->index].is_object()) return nullptr;
  const Value& item = list[place->index];
  return TextMember(item.get_object(), "id") == id ? &item : nullptr;
}

size_t CountItems(const Value& value) { return value.is_array() ? value.get_array().size() : 1; }

std::string ItemsOf(const Value& value, const KeptItems& kept, size_t before) {
  if (value.is_string()) {
    std::string out = "{\"type\":\"message\",\"id\":\"item_" + std::to_string(before) +
                      "\",\"role\":\"user\",\"content\":";
    json::AppendQuoted(json::View(value.get_string()), out);
    return out + '}';
  }
  std::string out;
  for (const Value& one : value.get_array()) {
    const Value* item = &one;
    if (IsReference(one.get_object())) item = kept.Found(TextMember(one.get_object(), "id"));
    const json::Object& object = item->get_object();
    if (!out.empty()) out += ',';
    out += '{';
    if (json::Find(object, "type") == nullptr) out += "\"type\":\"message\",";
    if (json::Find(object, "id") == nullptr) {
      out += "\"id\":\"item_" + std::to_string(before) + "\",";
    }
    out.append(json::Serialize(*item), 1);
    ++before;
  }
  return out;
}

FieldError ReadInput(const Value& value, const RequestLimits& limits, KeptItems& kept,
                     Conversation& out) {
  if (value.is_string()) {
    if (value.get_string().empty()) return InvalidField("input", "must not be empty");
    out.User(json::View(value.get_string()));
    return std::nullopt;
  }
  if (!value.is_array()) return InvalidField("input", "must be a text or a list of items");
  const json::Array& list = value.get_array();
  if (list.empty()) return InvalidField("input", "must hold at least one item");
  if (list.size() > limits.max_messages) {
    return PastLimit("input", "--max-messages", limits.max_messages,
                     limits.counters ? &limits.counters->messages : nullptr);
  }
  Items items(limits, kept, out);
  size_t index = 0;
  for (const Value& item : list) {
    const std::string where = "input[" + std::to_string(index++) + "]";
    if (auto problem = items.Read(item, where)) return problem;
    if (auto problem = out.Check("input", limits)) return problem;
  }
  return std::nullopt;
}

}  // namespace quire::responses
