// The engine: takes commands, plans a step, has the runner execute it, commits the result, and
// reports the outputs. See worker/README.md for the life of a request.
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

class AdapterMetrics;
class AdapterTable;
class Drafter;
class KvCache;
class MaskPool;

struct EngineOptions {
  int32_t max_model_len = 2048;
  int32_t max_num_seqs = 64;  // rows in a batch
  int32_t max_num_batched_tokens = 2048;
  int32_t max_waiting_requests = 1024;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  int64_t max_step_time_us = 0;  // prefill chunks are cut so that a step takes no longer; 0: off
  int32_t max_choices = 1;       // the largest n of a request
  int32_t block_size = 16;
  int64_t page_count = 0;
  bool prefix_caching = true;
  uint64_t block_hash_mask = ~uint64_t{0};  // see KvCacheOptions
  int32_t snapshot_slice = 4000;            // nodes visited behind a step; fewer only in tests
  // CacheKindsOf the model's KvLayout; empty: one full group.
  std::vector<CacheKindShape> cache_kinds;
  std::string model_id;
  std::string numerics_id;
  std::vector<TokenId> eos_token_ids;  // of the model's generation settings
  int32_t vocab_size = 0;
  int64_t slow_client_timeout_us = 30'000'000;
  int64_t idle_probe_interval_us = 5'000'000;
  // The features in the Hello; empty: all of ServedFeatures. A Submit that needs another one is
  // refused by name.
  std::vector<std::string> features;
  // The texts of constrained rows; without it no constraint is served. Outlives the engine.
  MaskPool* masks = nullptr;
  // Whether the tokens that a grammar forces are drafts of the next step.
  bool forced_tokens = true;
  // Proposes tokens ahead of the samples, at most max_drafts for a row in a step. It outlives the
  // engine; null: nothing is drafted. A model with states is never drafted for.
  Drafter* drafter = nullptr;
  int32_t max_drafts = 0;
  // What requests may name in Submit::adapter at the start. These two outlive the engine; null: no
  // adapters.
  const AdapterTable* adapters = nullptr;
  AdapterMetrics* adapter_metrics = nullptr;
  EngineMetrics* metrics = nullptr;  // outlives the engine; may be absent
  // Called with each page that is freed, so that tests can poison it. May be empty.
  std::function<void(int32_t page)> on_page_freed;
};

// What a Submit may request here (common/wire/features.h): `options.features` or, when these are
// empty, everything that the engine can do.
std::vector<std::string> ServedFeatures(const EngineOptions& options);

class Engine {
 public:
  // `runner` and `progress` outlive the engine.
  Engine(const EngineOptions& options, Runner& runner, StepProgress& progress);
  ~Engine();

  // Applies a command; its effects are in the output of the next RunOnce.
  void Apply(EngineCommand command, int64_t now_us);

  // Runs at most one step. In simulation the step's end may be in the future: see Runner.
  EngineOutput RunOnce(int64_t now_us);
  // The same into `output`, whose memory is reused: if the output of the call before last is passed
  // in, a step of running rows allocates nothing.
  void RunOnce(int64_t now_us, EngineOutput& output);

  // Reports to the metrics how long the last RunOnce took by the caller's clock. Requires: it
  // committed a step.
  void ObservePass(int64_t pass_us);

  const EngineTotals& totals() const;
  const KvCache& kv() const;  // for tests that compare it with what routers know

  // Whether the device is lost and no step has been computed since: see Runner. Attempts end as
  // retryable failures, Submits are refused as not ready, and the cache is empty when the device is
  // back.
  bool device_lost() const;

  // Aborts when an invariant is broken; run after every step in tests and simulation.
  void CheckInvariants() const;

 private:
  struct State;
  // False: the device is lost and not back yet.
  bool DeviceThere(int64_t now_us);

  std::unique_ptr<State> state_;
};

}  // namespace quire
