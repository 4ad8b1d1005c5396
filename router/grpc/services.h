// What the gRPC edge is given: the pipeline behind it, its limits, and its ways to the world.
//
// Owner: main; outlives the server and every connection. Event loop only, but for what calls read
// of it on background threads: clock, limits, keys, request_limits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/grpc/host.h"
#include "router/edge/services.h"

namespace quire {

inline constexpr uint64_t kMostTakenStep = 16;

// Outputs of a choice after which its client's taking is told: a window moves by a quarter, so that
// no larger step may pass before it does.
constexpr uint64_t TakenStepOf(uint64_t window_tokens) {
  return std::clamp<uint64_t>(window_tokens / 4, 1, kMostTakenStep);
}

struct GrpcEdgeLimits : GrpcLimits {
  Micros health_interval = 500 * kMicrosPerMilli;
  // Outputs of a choice that its client has had before the pipeline hears of it: TakenStepOf the
  // window.
  uint64_t taken_step = kMostTakenStep;
  size_t max_requests_per_call = 256;  // running at once in one ModelStreamInfer
};

struct GrpcServices : EdgeServices {
  GrpcEdgeLimits limits;
};

// For connections to these services, which outlive it.
GrpcHost MakeGrpcHost(const GrpcServices& services);

}  // namespace quire
