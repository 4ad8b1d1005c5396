// The tools of a /v1/responses request, as a model is shown them: functions in the shape of
// OpenAI's chat. Functions of a namespace go by namespace__name, and a custom tool is a function
// with one text.
//
// Pure; any thread. Input is hostile: an error names the part.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "router/chat/json_fields.h"

namespace quire::responses {

// What the client calls a function that the model was shown.
struct ToolName {
  std::string name;
  std::string space;  // its namespace; empty: none
  bool custom = false;
};

struct ToolSet {
  std::string json;                                    // a list of functions; empty: none
  std::map<std::string, ToolName, std::less<>> names;  // by the name that the model sees
  size_t left_out = 0;  // tools that run at OpenAI, which no model here can call
};

// The name that a model sees.
std::string ShownName(std::string_view space, std::string_view name);

FieldError ReadTools(const json::Value& value, ToolSet& out);

// Call it after ReadTools. {"type": "allowed_tools"} also cuts the set down.
FieldError ReadToolChoice(const json::Value& value, ToolSet& tools, ToolUse& out);

// {"input": TEXT}, which the model writes to call a custom tool; and TEXT out of it, or all of what
// the model wrote where it is something else.
std::string CustomArguments(std::string_view input);
std::string CustomInput(std::string_view arguments);

}  // namespace quire::responses
