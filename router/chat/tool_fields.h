// What a chat's body in OpenAI's shape says of tools and thoughts, and its messages that hold
// calls.
//
// Pure functions; any thread. Errors name the field.
#pragma once

#include <string>
#include <string_view>

#include "router/chat/json_fields.h"
#include "router/core/tools.h"

namespace quire {

inline constexpr size_t kMaxToolNameBytes = 128;

// At most --max-tools of them; counts a refusal.
FieldError CheckToolCount(size_t count, std::string_view name, const RequestLimits& limits);

// A list of tools of type function, as the template gets it. An empty list is none.
FieldError ReadTools(const json::Value& value, std::string_view name, const RequestLimits& limits,
                     std::string& tools_json);
// OpenAI's older `functions`, as a list of tools.
FieldError ReadFunctions(const json::Value& value, std::string_view name,
                         const RequestLimits& limits, std::string& tools_json);

// "none", "auto", "required", or an object that names a function.
FieldError ReadToolChoice(const json::Value& value, std::string_view name, ToolUse& use);
// The older `function_call`: "none", "auto" or {"name": "f"}.
FieldError ReadFunctionCall(const json::Value& value, std::string_view name, ToolUse& use);

// A choice demands tools, and the one that it names is among them. `field` is what the client calls
// the choice.
FieldError CheckToolUse(const ToolUse& use, std::string_view tools_json, std::string_view field);

// How many tokens a thought may have; `name` is a literal.
FieldError ReadBudget(const json::Value& value, std::string_view name, Thinking& thinking);

FieldError ReadEffort(const json::Value& value, std::string_view name, Thinking& thinking);

// A message's calls as templates take them, and its thoughts under each name that a template may
// read: arguments are parsed, and the older function_call becomes a call. `limits` holds what is
// left of the body's values.
FieldError ReadCalls(json::Object& message, const std::string& where, RequestLimits& limits);

// Template variables for what a request says of thoughts, beside those that it gives itself, which
// win. A budget that it gives as a template's variable holds as one of its own.
void ApplyThinking(Thinking& thinking, ChatPrompt& chat);

}  // namespace quire
