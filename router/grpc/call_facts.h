// What a call states beside its messages: request id, deadline, session, trace.
//
// Any thread; pure.
#pragma once

#include <string>

#include "common/grpc/call_head.h"
#include "common/runtime/runtime.h"
#include "router/core/api.h"

namespace quire {

// Deadline, session and trace context of the call; an earlier timeout of the request itself stays.
void ReadCallFacts(const GrpcCallHead& head, Micros now, GenerateRequest& out);

// `wanted` where it is usable, else the call's x-request-id, else empty: the event loop draws one.
std::string RequestIdOf(const GrpcCallHead& head, const std::string& wanted);

}  // namespace quire
