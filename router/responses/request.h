// The body of /v1/responses, read into a request of the pipeline.
//
// Any thread; pure. Bodies are hostile: size, depth, counts and numbers are checked, and an error
// names the field in the client's spelling. The table of fields is in the source.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "router/chat/answer_events.h"
#include "router/core/request_limits.h"
#include "router/responses/store.h"

namespace quire::responses {

// nullopt: `out` holds the request. It continues a response that `keeping` has, where it names one,
// and its own answer is kept there unless `store` is false.
std::optional<ApiError> ReadRequest(std::string_view body, const RequestLimits& limits,
                                    const Keeping& keeping, AgentRequest& out);

// An error of the pipeline in this API's words: it speaks of messages where the client has `input`.
ApiError InClientsWords(ApiError error);

}  // namespace quire::responses
