// Reads the head of a call from the headers of its request.
//
// Pure.
#pragma once

#include <string_view>

#include "common/grpc/call_head.h"
#include "common/http2/session.h"

namespace quire {

bool IsGrpc(std::string_view content_type);
GrpcCallHead HeadOf(const http2::HeaderBlock& block, Micros now);
// INVALID_ARGUMENT: a header of gRPC itself is malformed.
absl::Status CheckHead(const GrpcCallHead& head);

}  // namespace quire
