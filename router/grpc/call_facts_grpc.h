// What a call says of itself beside its messages: request id, deadline, session, trace.
//
// Any thread, while the call lives.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "common/runtime/runtime.h"
#include "router/core/api.h"

namespace quire {

// Deadline, session and trace context of the call; an earlier timeout of the request's own stands.
void ReadCallFacts(const grpc::CallbackServerContext& context, GenerateRequest& out);

// `wanted` where it is usable, else the call's x-request-id, else empty: the event loop draws one.
std::string RequestIdOf(const grpc::CallbackServerContext& context, const std::string& wanted);
std::string NewRequestId(Rng& rng);

}  // namespace quire
