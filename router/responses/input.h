// The items of a /v1/responses request become the messages of a chat.
//
// Pure; any thread. Input is hostile: depth and values of JSON in texts are bounded with the
// body's, and an error names the item.
#pragma once

#include "router/chat/conversation.h"
#include "router/chat/json_fields.h"

namespace quire::responses {

// A string, or a list of items of text kinds.
FieldError ReadInput(const json::Value& value, const RequestLimits& limits, Conversation& out);

}  // namespace quire::responses
