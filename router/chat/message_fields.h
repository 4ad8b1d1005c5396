// The messages of a chat in OpenAI's shape.
//
// Pure functions; any thread. Errors name the field.
#pragma once

#include <string>

#include "router/chat/json_fields.h"

namespace quire {

// Roles are checked, text parts joined, and the result written back as JSON. Consumes the value.
FieldError ReadMessages(json::Value& value, RequestLimits limits, std::string& out);

}  // namespace quire
