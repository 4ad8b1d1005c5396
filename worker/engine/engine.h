// The engine: takes commands, plans a step, has the runner execute it, commits the result, says
// what came of it. See worker/README.md for the life of a request.
//
// Owner: the engine thread (or the simulation's one thread). Nothing here blocks, reads a clock or
// starts a thread; time comes in as an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/core/cache_shape.h"
#include "worker/core/engine_io.h"
#include "worker/engine/engine_metrics.h"
#include "worker/runner/runner.h"
#include "worker/scheduler/policy.h"

namespace quire {

class KvCache;

struct EngineOptions {
  int32_t max_model_len = 2048;
  int32_t max_num_seqs = 64;  // rows in a batch
  int32_t max_num_batched_tokens = 2048;
  int32_t max_waiting_requests = 1024;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  int64_t max_step_time_us = 0;  // prefill chunks are cut so that a step takes no longer; 0: off
  int32_t max_choices = 1;       // n served per request
  int32_t block_size = 16;
  int64_t page_count = 0;
  bool prefix_caching = true;
  uint64_t block_hash_mask = ~uint64_t{0};  // see KvCacheOptions
  int32_t snapshot_slice = 4000;            // nodes looked at behind a step; fewer only in tests
  // CacheKindsOf the model's KvLayout; empty: one full group.
  std::vector<CacheKindShape> cache_kinds;
  std::string model_id;
  std::string numerics_id;
  std::vector<TokenId> eos_token_ids;  // of the model's generation settings
  int32_t vocab_size = 0;
  int64_t slow_client_timeout_us = 30'000'000;
  int64_t idle_probe_interval_us = 5'000'000;
  // What the Hello lists; empty: all of ServedFeatures. A Submit that needs more is refused by
  // name.
  std::vector<std::string> features;
  EngineMetrics* metrics = nullptr;  // outlives the engine; may be absent
  // Told each page that is given back, so that tests can poison it. May be empty.
  std::function<void(int32_t page)> on_page_freed;
};

// What a Submit may ask for here (common/wire/features.h): `options.features` or, when these are
// empty, all that the engine can do.
std::vector<std::string> ServedFeatures(const EngineOptions& options);

class Engine {
 public:
  // `runner` and `progress` outlive the engine.
  Engine(const EngineOptions& options, Runner& runner, StepProgress& progress);
  ~Engine();

  // Applies a command; what it causes is said by the next RunOnce.
  void Apply(EngineCommand command, int64_t now_us);

  // Runs at most one step. In simulation the step's end may lie in the future: see Runner.
  EngineOutput RunOnce(int64_t now_us);
  // The same into `output`, whose memory is used again: with the output of the call before last
  // handed in, a step of rows that run allocates nothing.
  void RunOnce(int64_t now_us, EngineOutput& output);

  // Tells the metrics how long the last RunOnce took by the clock of whoever called it. Requires:
  // it committed a step.
  void ObservePass(int64_t pass_us);

  const EngineTotals& totals() const;
  const KvCache& kv() const;  // for tests that hold what is told of it against it

  // Whether the device is lost and no step has been computed since: see Runner. Attempts end as
  // retryable failures, Submits are refused as not ready, the cache is empty when it is back.
  bool device_lost() const;

  // Dies when an invariant is broken; run after every step in tests and simulation.
  void CheckInvariants() const;

 private:
  struct State;
  // False: the device is lost, and it is not there to be asked again.
  bool DeviceThere(int64_t now_us);

  std::unique_ptr<State> state_;
};

}  // namespace quire
