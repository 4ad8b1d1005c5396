// The gRPC server: quire.v1.Inference with health and reflection, and the services that are added.
//
// Owner: main; made, started and destroyed on the event loop's thread. gRPC's own threads only post
// to the loop.
//
// Invariants:
// 1. Every pipeline call and callback happens on the event loop.
// 2. An output counts as taken when its message has gone to the transport; that is told in steps.
// 3. It listens nowhere: connections come by Adopt, past the front's guard.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/keys/key_ring.h"
#include "router/pipeline/pipeline.h"

namespace grpc {
class Service;
}

namespace quire {

inline constexpr uint64_t kMostTakenStep = 16;

// Outputs of a choice after which its client's taking is told: a window moves by a quarter, so that
// no larger step may pass before it does.
constexpr uint64_t TakenStepOf(uint64_t window_tokens) {
  return std::clamp<uint64_t>(window_tokens / 4, 1, kMostTakenStep);
}

struct GrpcLimits {
  int max_receive_bytes = 16 << 20;
  int max_send_bytes = 16 << 20;
  int max_metadata_bytes = 16 << 10;
  int max_concurrent_streams = 256;             // of one connection
  Micros idle_timeout = 75 * kMicrosPerSecond;  // of a connection without a call
  size_t memory_quota_bytes = 512u << 20;       // of gRPC's own buffers
  Micros health_interval = 500 * kMicrosPerMilli;
  Micros keep_alive = 15 * kMicrosPerSecond;  // of silence, then a client is pinged
  // Outputs of a choice that its client has had before the pipeline hears of it: TakenStepOf the
  // window.
  uint64_t taken_step = kMostTakenStep;
  size_t max_requests_per_call = 256;  // running at once in one ModelStreamInfer
};

struct GrpcServices {
  Executor& executor;
  Pipeline& pipeline;
  Rng& rng;
  EdgeMetrics& counters;
  Logger& log;
  GrpcLimits limits;
  KeyRing* keys = nullptr;  // who may come in; nullptr: everyone
  RequestLimits request_limits = {};
  std::string version = {};
  bool leaving = false;  // not ready any more, though it still serves; event loop only
  std::vector<std::function<void()>> after_turn = {};  // event loop only

  // Event loop. Calls `work` in the loop's next turn, together with all that this one gives it.
  void AfterTurn(std::function<void()> work);
};

class InferenceServer {
 public:
  explicit InferenceServer(GrpcServices& services);
  // Shut down before, unless Start failed.
  ~InferenceServer();

  // Before Start. `name` is the service's full one, which health tells of.
  void AddService(std::string name, std::unique_ptr<grpc::Service> service);
  absl::Status Start();
  // Takes over a connected socket on which a client's HTTP/2 arrives.
  void Adopt(int fd);
  // Health says NOT_SERVING from now on.
  void StartDraining();
  // Clients are told to open no more calls here; those under way have `grace` to end. Blocks until
  // all have, and needs the loop to run meanwhile: any other thread, once.
  void Shutdown(Micros grace);
  // Ends the calls that Shutdown waits for. Any thread.
  void CancelCalls();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
