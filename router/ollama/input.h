// The messages of /api/chat, as the messages of a chat in OpenAI's shape.
//
// Pure functions; any thread. Errors name the field.
#pragma once

#include <string>

#include "router/chat/json_fields.h"

namespace quire::ollama {

// The list is not empty. Ollama's calls need no ids: they are numbered, and the result of a tool
// belongs to the first call of its name, or else to the first, that has none yet. Consumes the
// value.
FieldError ReadTurns(json::Value& value, const RequestLimits& limits, std::string& out);

// Refuses pictures by name; an empty list is none.
FieldError RefuseImages(const json::Value& value, std::string_view name);

}  // namespace quire::ollama
