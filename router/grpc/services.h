// What the gRPC edge needs: the pipeline behind it, its limits, and clock and keys.
//
// Owner: main; outlives the server and every connection. Event loop only, except for the members
// that calls read on background threads: clock, limits, keys, request_limits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/grpc/host.h"
#include "router/edge/services.h"

namespace quire {

inline constexpr uint64_t kMostTakenStep = 16;

// The number of outputs of a choice after which the pipeline learns that the client took them: a
// window moves by a quarter, so larger steps would delay it.
constexpr uint64_t TakenStepOf(uint64_t window_tokens) {
  return std::clamp<uint64_t>(window_tokens / 4, 1, kMostTakenStep);
}

struct GrpcEdgeLimits : GrpcLimits {
  Micros health_interval = 500 * kMicrosPerMilli;
  // How many outputs of a choice a client takes before the pipeline learns of it: TakenStepOf the
  // window.
  uint64_t taken_step = kMostTakenStep;
  size_t background_write_bytes = 64u << 10;  // larger lists of tokens are written off the loop
  size_t max_requests_per_call = 256;         // running at once in one ModelStreamInfer
};

struct GrpcServices : EdgeServices {
  GrpcEdgeLimits limits;
};

// For connections to these services, which outlive it.
GrpcHost MakeGrpcHost(const GrpcServices& services);

}  // namespace quire
