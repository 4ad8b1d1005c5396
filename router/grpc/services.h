// What the gRPC edge is given: the pipeline behind it, its limits, and its ways to the world.
//
// Owner: main; outlives the server and every connection. Event loop only, but for what calls read
// of it on background threads: clock, limits, keys, request_limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "common/grpc/host.h"
#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/keys/key_ring.h"
#include "router/pipeline/pipeline.h"

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

struct GrpcServices {
  Executor& executor;
  Pipeline& pipeline;
  Background& background;
  Rng& rng;
  EdgeMetrics& counters;
  Logger& log;
  GrpcEdgeLimits limits;
  KeyRing* keys = nullptr;  // who may come in; nullptr: everyone
  RequestLimits request_limits = {};
  std::string version = {};
  // Shared with the HTTP edge: what all clients make the router hold, and beside it what waits to
  // be parsed.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  std::shared_ptr<MemoryAccount> bodies =
      std::make_shared<MemoryAccount>(size_t{1} << 30, nullptr, MemoryScope::kWaiting);
  bool leaving = false;  // not ready any more, though it still serves
};

// For connections to these services, which outlive it.
GrpcHost MakeGrpcHost(const GrpcServices& services);

}  // namespace quire
