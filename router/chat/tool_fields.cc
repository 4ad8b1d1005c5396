#include "router/chat/tool_fields.h"

#include <algorithm>

#include "router/core/result.h"

namespace quire {
namespace {

using json::Value;

// The body, its messages, a message, its calls, a call, its function: arguments are nested in
// these.
constexpr size_t kDepthOfArguments = 6;

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view("_-.:/").find(c) != std::string_view::npos;
         });
}

std::string_view TextOf(const json::Object& object, std::string_view key) {
  const Value* value = json::Find(object, key);
  return value != nullptr && value->is_string() ? json::View(value->get_string()) : "";
}

FieldError CheckFunction(const Value* function, const std::string& where) {
  if (function == nullptr || !function->is_object()) {
    return InvalidField(where, "must be an object with a name and parameters");
  }
  const json::Object& object = function->get_object();
  if (!IsToolName(TextOf(object, "name"))) {
    return InvalidField(where + ".name", "must be 1 to " + std::to_string(kMaxToolNameBytes) +
                                             " letters, digits and _-.:/, such as \"get_weather\"");
  }
  const Value* parameters = json::Find(object, "parameters");
  if (parameters != nullptr && !parameters->is_null() && !parameters->is_object()) {
    return InvalidField(where + ".parameters",
                        "must be a JSON schema, such as {\"type\": "
                        "\"object\", \"properties\": {}}");
  }
  const Value* strict = json::Find(object, "strict");
  if (strict != nullptr && !strict->is_null() && !strict->is_bool()) {
    return InvalidField(where + ".strict", "must be true or false");
  }
  return std::nullopt;
}

FieldError Chosen(const json::Object& object, std::string_view name, ToolUse& use) {
  const std::string_view chosen = TextOf(object, "name");
  if (!IsToolName(chosen)) {
    return InvalidField(name, "must name a function, such as \"get_weather\"");
  }
  use.choice = ToolChoice::kNamed;
  use.name = std::string(chosen);
  return std::nullopt;
}

// Clients write the arguments of a call as a JSON text; templates need its parsed content, or they
// would quote it once more. vLLM parses them too. Their depth and values count as part of the body.
FieldError ReadArguments(json::Object& function, const std::string& where, RequestLimits& limits) {
  auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->value().is_string()) return std::nullopt;
  const std::string_view given = json::View(arguments->value().get_string());
  const std::string_view text = given.empty() ? "{}" : given;
  auto read = ReadJson(text, limits, kDepthOfArguments);
  if (absl::IsUnavailable(read.status())) return TooManyLargeRequests();
  limits.max_json_values -= std::min(limits.max_json_values, json::Measure(text).values);
  if (!read.ok()) {
    return InvalidField(where + ".arguments",
                        "must be a JSON text such as \"{}\": " + StatusMessage(read.status()));
  }
  arguments->value() = *std::move(read);
  return std::nullopt;
}

// The older form of a call, and of its result.
void ReadFunctionMessage(json::Object& message) {
  const Value* role = json::Find(message, "role");
  if (role != nullptr && role->is_string() && json::View(role->get_string()) == "function") {
    message["role"] = "tool";
  }
  auto call = message.find("function_call");
  if (call == message.end() || !call->value().is_object() || message.contains("tool_calls")) return;
  json::Object made;
  made["type"] = "function";
  made["function"] = std::move(call->value());
  message.erase(call);
  json::Array calls;
  calls.push_back(std::move(made));
  message["tool_calls"] = std::move(calls);
}

// Templates read a thought under the name that its family gave it.
void SpreadThought(json::Object& message) {
  std::string thought(TextOf(message, "reasoning"));
  if (thought.empty()) thought = TextOf(message, "reasoning_content");
  if (thought.empty()) return;
  for (const std::string_view key : {"reasoning", "reasoning_content"}) {
    message[json::BoostView(key)] = json::BoostView(thought);
  }
  // Harmony's template refuses a thought beside a text before calls.
  const bool beside = !TextOf(message, "content").empty() && message.contains("tool_calls");
  if (!beside && !message.contains("thinking")) message["thinking"] = json::BoostView(thought);
}

}  // namespace

FieldError CheckToolCount(size_t count, std::string_view name, const RequestLimits& limits) {
  if (count <= limits.max_tools) return std::nullopt;
  return PastLimit(name, "--max-tools", limits.max_tools,
                   limits.counters ? &limits.counters->tools : nullptr);
}

FieldError ReadTools(const Value& value, std::string_view name, const RequestLimits& limits,
                     std::string& tools_json) {
  if (!value.is_array()) return InvalidField(name, "must be a list of tools");
  const json::Array& list = value.get_array();
  if (auto problem = CheckToolCount(list.size(), name, limits)) return problem;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = std::string(name) + "[" + std::to_string(i) + "]";
    if (!list[i].is_object()) {
      return InvalidField(where, "must be an object with type and function");
    }
    const json::Object& tool = list[i].get_object();
    const std::string_view type = TextOf(tool, "type");
    if (type != "function") {
      return InvalidField(where + ".type", "is \"" + std::string(type.substr(0, 64)) +
                                               "\"; only tools of type \"function\" are served");
    }
    if (auto problem = CheckFunction(json::Find(tool, "function"), where + ".function")) {
      return problem;
    }
  }
  tools_json = list.empty() ? "" : json::Serialize(value);
  return std::nullopt;
}

FieldError ReadFunctions(const Value& value, std::string_view name, const RequestLimits& limits,
                         std::string& tools_json) {
  if (!value.is_array()) return InvalidField(name, "must be a list of functions");
  const json::Array& list = value.get_array();
  if (auto problem = CheckToolCount(list.size(), name, limits)) return problem;
  tools_json.clear();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = std::string(name) + "[" + std::to_string(i) + "]";
    if (auto problem = CheckFunction(&list[i], where)) return problem;
    tools_json += tools_json.empty() ? "[" : ",";
    tools_json += "{\"type\":\"function\",\"function\":" + json::Serialize(list[i]) + "}";
  }
  if (!tools_json.empty()) tools_json += ']';
  return std::nullopt;
}

FieldError ReadToolChoice(const Value& value, std::string_view name, ToolUse& use) {
  if (value.is_string()) {
    const std::string_view word = json::View(value.get_string());
    use.choice = word == "none"   ? ToolChoice::kNone
                 : word == "auto" ? ToolChoice::kAuto
                                  : ToolChoice::kRequired;
    if (word == "none" || word == "auto" || word == "required") return std::nullopt;
  }
  if (value.is_object() && TextOf(value.get_object(), "type") == "function") {
    const Value* function = json::Find(value.get_object(), "function");
    const std::string where = std::string(name) + ".function.name";
    if (function != nullptr && function->is_object()) {
      return Chosen(function->get_object(), where, use);
    }
    return Chosen(value.get_object(), where, use);  // as the Responses API writes it
  }
  return InvalidField(name,
                      "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                      "\"function\": {\"name\": \"get_weather\"}}");
}

FieldError ReadFunctionCall(const Value& value, std::string_view name, ToolUse& use) {
  if (value.is_object()) return Chosen(value.get_object(), std::string(name) + ".name", use);
  if (value.is_string()) {
    const std::string_view word = json::View(value.get_string());
    use.choice = word == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
    if (word == "none" || word == "auto") return std::nullopt;
  }
  return InvalidField(name, "must be \"none\", \"auto\" or {\"name\": \"get_weather\"}");
}

FieldError CheckToolUse(const ToolUse& use, std::string_view tools_json, std::string_view field) {
  if (use.choice == ToolChoice::kNone || use.choice == ToolChoice::kAuto) return std::nullopt;
  if (tools_json.empty()) {
    return InvalidField(field, "needs tools: give the functions that the model may call");
  }
  if (use.choice == ToolChoice::kRequired) return std::nullopt;
  const absl::StatusOr<Value> tools = json::Parse(tools_json);  // written by ReadTools
  for (const Value& tool : tools->get_array()) {
    const Value* function = json::Find(tool.get_object(), "function");
    if (TextOf(function->get_object(), "name") == use.name) return std::nullopt;
  }
  return InvalidField(field, "names \"" + use.name + "\", which is none of the tools");
}

FieldError ReadBudget(const Value& value, std::string_view name, Thinking& thinking) {
  std::optional<int32_t> tokens;
  if (auto problem = ReadInt(value, name, tokens)) return problem;
  if (*tokens < 0) {
    return InvalidField(name, "must be in [0, " + std::to_string(INT32_MAX) + "]");
  }
  thinking.budget = static_cast<uint32_t>(*tokens);
  thinking.budget_field = name;
  return std::nullopt;
}

FieldError ReadEffort(const Value& value, std::string_view name, Thinking& thinking) {
  if (auto problem = ReadName(value, name, thinking.effort)) return problem;
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), thinking.effort) == std::end(kEfforts)) {
    return InvalidField(name, "must be none, minimal, low, medium, high, xhigh or max");
  }
  if (thinking.effort == "none") thinking.enabled = false;
  return std::nullopt;
}

FieldError ReadCalls(json::Object& message, const std::string& where, RequestLimits& limits) {
  ReadFunctionMessage(message);
  SpreadThought(message);
  auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->value().is_array()) return std::nullopt;
  size_t index = 0;
  for (Value& call : calls->value().get_array()) {
    const std::string place = where + ".tool_calls[" + std::to_string(index++) + "]";
    if (!call.is_object()) return InvalidField(place, "must be an object with a function");
    auto function = call.get_object().find("function");
    if (function == call.get_object().end() || !function->value().is_object()) continue;
    if (auto problem = ReadArguments(function->value().get_object(), place + ".function", limits)) {
      return problem;
    }
  }
  return std::nullopt;
}

void ApplyThinking(Thinking& thinking, ChatPrompt& chat) {
  constexpr std::string_view kBudget = "thinking_budget";
  const bool says = thinking.enabled || thinking.budget || !thinking.effort.empty();
  if (!says && chat.template_kwargs_json.find(kBudget) == std::string::npos) return;
  json::Object variables;
  if (!chat.template_kwargs_json.empty()) {
    absl::StatusOr<Value> given = json::Parse(chat.template_kwargs_json);
    if (given.ok() && given->is_object()) variables = std::move(given->get_object());
  }
  const auto set = [&](std::string_view key, Value value) {
    if (!variables.contains(json::BoostView(key))) {
      variables[json::BoostView(key)] = std::move(value);
    }
  };
  if (thinking.enabled) {
    set("enable_thinking", *thinking.enabled);
    set("thinking", *thinking.enabled);
  }
  if (!thinking.effort.empty()) set("reasoning_effort", json::BoostView(thinking.effort));
  const Value* given = json::Find(variables, kBudget);
  // Templates take −1 as well: no limit.
  const bool limits = given != nullptr && given->is_int64() && given->get_int64() >= 0 &&
                      given->get_int64() <= INT32_MAX;
  if (limits && !thinking.budget) {
    thinking.budget = static_cast<uint32_t>(given->get_int64());
    thinking.budget_field = "chat_template_kwargs.thinking_budget";
    thinking.budget_firm = false;
  }
  if (!says) return;
  if (thinking.budget) set(kBudget, *thinking.budget);
  chat.template_kwargs_json = json::Serialize(Value(std::move(variables)));
}

}  // namespace quire
