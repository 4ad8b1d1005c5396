// The text that a client expects as its answer, in OpenAI's shape ("predicted outputs").
//
// Pure functions; any thread. Errors name the field.
#pragma once

#include <string>
#include <string_view>

#include "router/chat/json_fields.h"

namespace quire {

// {"type": "content", "content": a text, or a list of parts of type text}; parts are joined as they
// are.
FieldError ReadPrediction(const json::Value& value, std::string_view name, std::string& out);

}  // namespace quire
