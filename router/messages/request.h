// The bodies of /v1/messages and /v1/messages/count_tokens, read into requests of the pipeline.
//
// Any thread; pure. Bodies are hostile: size, depth, counts and numbers are checked, and an error
// names the field in the client's spelling. The table of fields is in the source.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "router/chat/answer_events.h"
#include "router/core/request_limits.h"

namespace quire::messages {

enum class Purpose { kAnswer, kCount };  // only an answer needs max_tokens

// nullopt: `out` holds the request.
std::optional<ApiError> ReadRequest(std::string_view body, Purpose purpose,
                                    const RequestLimits& limits, AgentRequest& out);

}  // namespace quire::messages
