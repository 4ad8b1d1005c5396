// What the gRPC edge is given: the pipeline behind it, its limits, and its ways to the world.
//
// Owner: main; outlives the server and every connection. Event loop only, but for what calls read
// of it on background threads: clock, limits, keys, request_limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/runtime/runtime.h"
#include "router/core/body_account.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/grpc/http2_guard.h"
#include "router/keys/key_ring.h"
#include "router/pipeline/pipeline.h"

namespace quire {

inline constexpr uint64_t kMostTakenStep = 16;

// Outputs of a choice after which its client's taking is told: a window moves by a quarter, so that
// no larger step may pass before it does.
constexpr uint64_t TakenStepOf(uint64_t window_tokens) {
  return std::clamp<uint64_t>(window_tokens / 4, 1, kMostTakenStep);
}

struct GrpcLimits {
  size_t max_receive_bytes = 16u << 20;            // of one message
  size_t max_send_bytes = 16u << 20;               // of one message
  size_t background_parse_bytes = 64u << 10;       // larger messages are parsed off the event loop
  size_t max_held_bytes = 64u << 20;               // of one connection's messages that wait
  uint32_t max_metadata_bytes = 16u << 10;         // of one call
  uint32_t max_concurrent_streams = 256;           // of one connection
  Micros message_timeout = 60 * kMicrosPerSecond;  // for the whole of a message that is awaited
  Micros idle_timeout = 75 * kMicrosPerSecond;     // of a connection without a call
  Micros keep_alive = 15 * kMicrosPerSecond;       // of silence, then a client is pinged
  Micros ping_timeout = 20 * kMicrosPerSecond;     // for a word after that
  Micros notice_timeout = 2 * kMicrosPerSecond;    // for calls under way when a client is left
  Micros write_timeout = 30 * kMicrosPerSecond;    // a client takes nothing of what has ended
  Micros linger_timeout = 2 * kMicrosPerSecond;    // reading on after the end, so that it arrives
  size_t max_linger_bytes = 4u << 20;
  Micros health_interval = 500 * kMicrosPerMilli;
  // Outputs of a choice that its client has had before the pipeline hears of it: TakenStepOf the
  // window.
  uint64_t taken_step = kMostTakenStep;
  size_t max_requests_per_call = 256;  // running at once in one ModelStreamInfer
  GuardLimits guard;
};

struct GrpcServices {
  Executor& executor;
  Pipeline& pipeline;
  Background& background;
  Rng& rng;
  EdgeMetrics& counters;
  Logger& log;
  GrpcLimits limits;
  KeyRing* keys = nullptr;  // who may come in; nullptr: everyone
  RequestLimits request_limits = {};
  std::string version = {};
  // Shared with the HTTP edge.
  std::shared_ptr<BodyAccount> bodies = std::make_shared<BodyAccount>(size_t{1} << 30);
  bool leaving = false;  // not ready any more, though it still serves

  // What a turn of the loop leaves to be done at its end, in one piece with what other calls leave:
  // first `after_turn`, where calls write what the turn had for them, then `flushes`, where
  // connections give to the system what was written.
  struct TurnEnd {
    std::vector<std::function<void()>> after_turn = {};
    std::vector<std::function<void()>> flushes = {};
    bool posted = false;
  };
  // Shared with its own posted turn, only while that runs.
  std::shared_ptr<TurnEnd> turn_end = std::make_shared<TurnEnd>();

  void AfterTurn(std::function<void()> work);
  void Flush(std::function<void()> work);
};

}  // namespace quire
