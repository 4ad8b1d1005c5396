// What this router knows of its workers and of the models that they serve: plain state, updated by
// the links.
//
// Owner: the dispatcher, on the router's executor. No I/O, no clock: time comes in as an argument.
//  1. A worker has one phase at a time; only kReady workers take new work.
//  2. A pool is a pair (served name, model_id), or an adapter's (name, model_id, digest), in the
//     order in which they were first seen. It outlives its workers, so that a name stays known
//     while they restart, until max_pools are reached and its place is needed.
//  3. A model_id has one text bundle: the first one seen. A worker with another is refused and
//     reported.
//  4. Workers and pools are listed in index order, so that decisions do not depend on hashing.
//  5. At most half of a pool's ready workers are left out for their deaths, and at most half of
//     its workers are given up for their silence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "common/wire/values.h"
#include "router/core/limits.h"
#include "router/fleet/pools.h"
#include "router/fleet/worker_health.h"
#include "router/fleet/worker_view.h"

namespace quire {

enum class WorkerPhase : uint8_t {
  kConnecting,  // no Attach
  kPreparing,  // attached; its model's text is not available yet, or it has not reported that it is
               // ready
  kReady,
  kDraining,
  kStuck,    // a step is running past its limit
  kSilent,   // nothing comes from it, and too many others are gone to give it up
  kRefused,  // attached, and unusable: see refusal
  kGone,     // no worker: the place is free for another one
};
std::string_view WorkerPhaseName(WorkerPhase phase);

struct WorkerRecord {
  WorkerIndex index;
  std::string target;
  WorkerPhase phase = WorkerPhase::kConnecting;
  bool attached = false;
  bool draining = false;
  std::string refusal;     // with kRefused
  std::string last_error;  // why the last Attach ended or could not begin
  WorkerHello hello;       // of the last Attach; its adapters by their digests, as they are now
  Load load;
  WorkerState state = WorkerState::kStarting;
  bool stuck = false;
  bool silent = false;    // attached, and nothing comes
  bool given_up = false;  // its last Attach ended for its silence
  WorkerHealth health;
  uint32_t routers_attached = 1;
  Micros last_progress_at = 0;      // when steps_total last grew, as this router saw it
  uint32_t live_attempts = 0;       // of this router
  uint32_t unadmitted_submits = 0;  // sent by this router and not yet seen admitted or refused
  Micros detached_at = 0;
  // The last Hello that CheckUnique refused.
  std::string refused_id;
  Epoch refused_epoch;
};

// When a process is found at two addresses, the router does not dial the second one for this long
// after its link at the first one was lost: each dial would end the other's Attach.
inline constexpr Micros kSameProcessPause = 10 * kMicrosPerSecond;

class Fleet {
 public:
  explicit Fleet(const RouterLimits& limits) : limits_(limits) {}
  // Before the first worker attaches.
  void SetPoolRules(PoolRules rules) { rules_ = std::move(rules); }
  const PoolRules& pool_rules() const { return rules_; }

  // RESOURCE_EXHAUSTED past max_workers; ALREADY_EXISTS for a target that is listed.
  absl::StatusOr<WorkerIndex> AddWorker(const std::string& target);
  // Forgets a worker that has no attempts and no Attach; its index may be reused later. What it
  // reported of its model stays known.
  void RemoveWorker(WorkerIndex worker);

  // A Hello arrived. ALREADY_EXISTS: a worker of this id is attached at another address, or was
  // just now in the same epoch; dialling waits until MayDial.
  absl::Status CheckUnique(WorkerIndex worker, const WorkerHello& hello, Micros now);
  bool MayDial(WorkerIndex worker, Micros now);
  // Says whether the worker may be used; it becomes ready with its first ready
  // Step and once its model's text is.
  absl::Status Attached(WorkerIndex worker, const WorkerHello& hello, int64_t now_unix_seconds);
  // The worker holds other adapters from now on. A name that no worker has any more is forgotten.
  void AdaptersChanged(WorkerIndex worker, const quire::AdaptersChanged& changed,
                       int64_t now_unix_seconds);
  // The Attach ended, or dialling failed.
  void Detached(WorkerIndex worker, const std::string& why, Micros now);

  // What frames of a worker mean for its health; these calls come before Attached, after Detached,
  // and with each Stepped.
  DeathNews Greeted(WorkerIndex worker, Epoch epoch, Micros now);
  void LinkLost(WorkerIndex worker, bool for_silence, Micros now);
  DeathNews Refused(WorkerIndex worker, Micros now);
  DeathNews StepSeen(WorkerIndex worker, Micros now);
  // Nothing has come from the worker for the silence time. False: the worker must not be given up,
  // since then more than half of its pool would be; it takes no new work until it is heard again.
  bool MayGiveUpSilent(WorkerIndex worker);
  // The same for a worker whose frames still come, so that it is not marked.
  bool MayGiveUp(WorkerIndex worker) const;
  void Draining(WorkerIndex worker);
  void Stepped(WorkerIndex worker, const StepFrame& step, Micros now);
  // The text of this model can be used from now on, or is refused for good with the reason.
  void TextReady(const std::string& model_id);
  void TextRefused(const std::string& model_id, const std::string& reason);

  void AttemptStarted(WorkerIndex worker);
  void AttemptAnswered(WorkerIndex worker);  // admitted or refused
  void AttemptEnded(WorkerIndex worker, bool was_answered);
  // Submits on their way to the worker, and their prefill work.
  void SetUnseen(WorkerIndex worker, uint64_t submits, uint64_t tokens);

  const WorkerRecord& worker(WorkerIndex index) const;
  const std::vector<WorkerRecord>& workers() const { return workers_; }
  // The worker's state without what changes with time alone.
  const WorkerView& view(WorkerIndex index) const { return views_.at(index.value()); }
  const std::vector<Pool>& pools() const { return pools_; }

  // The pools of this name, in the order in which they were seen. Empty: no worker ever served it.
  // A name that is a model's anywhere is no adapter's.
  std::vector<PoolCapacity> PoolsOf(std::string_view name) const;
  uint32_t ReadyCount(const std::string& model_id) const;
  // The same for every name, in the order in which names were first seen.
  std::vector<std::pair<std::string_view, std::vector<PoolCapacity>>> PoolsByName() const;
  // Routers that share this fleet, including this one: the most that a worker sees.
  uint32_t RoutersAttached() const;
  // A worker whose Hello gives the limits and features of this model: a ready one if there is one;
  // if all have gone, the last one as it was.
  const WorkerRecord* Representative(const std::string& model_id) const;
  // What every ready worker of the model offers; with none ready, what the representative offers.
  // In a rolling update workers of two versions may differ.
  const std::vector<std::string>& FeaturesOf(const std::string& model_id) const;
  FleetView View(const std::string& model_id, Micros now) const;
  void View(const std::string& model_id, Micros now, FleetView& view) const;
  // Shows the workers of such a view one by one, until `see` returns that it has seen enough.
  void Look(const std::string& model_id, Micros now,
            absl::FunctionRef<bool(const WorkerView&)> see) const;
  // Workers left out for their deaths now.
  uint32_t EjectedCount(const std::string& model_id, Micros now) const;

  void CheckInvariants() const;

 private:
  struct Text {
    std::string sha256;  // of the first bundle seen
    bool ready = false;
    std::string refusal;
  };

  WorkerRecord& Get(WorkerIndex index);
  const WorkerRecord* OtherOf(WorkerIndex worker, const std::string& worker_id, Epoch epoch,
                              Micros now) const;
  void Settle(WorkerRecord& worker);  // recomputes the phase
  WorkerPhase PhaseOf(WorkerRecord& worker);
  void CheckGivenUp(const std::string& model_id) const;
  std::vector<WorkerIndex> Ejected(const ModelWorkers& model, Micros now) const;
  const WorkerRecord* LikeOf(const std::string& model_id, const ModelWorkers& model) const;
  const ModelWorkers& WorkersOf(const std::string& model_id) const;
  ModelWorkers Listed(const std::string& model_id) const;
  PoolCapacity CapacityOf(const Pool& pool) const;
  PoolCapacity Capacity(const Pool& pool) const;
  void ForgetListed();
  std::vector<std::string> Offered(const std::string& model_id, const ModelWorkers& model) const;
  void Show(const WorkerRecord& worker);  // current, in views_
  void Felt(const WorkerRecord& worker);  // its health changed
  void CheckViews() const;
  absl::Status AddPools(const WorkerHello& hello, int64_t now_unix_seconds);
  absl::Status AddPool(Pool added);
  bool ForgetPool();
  void ForgetAdapterPools(const std::string& model_id, bool contents);
  void NumberPools();
  void ForgetTexts();

  const RouterLimits limits_;
  PoolRules rules_;
  std::vector<WorkerRecord> workers_;
  std::vector<Pool> pools_;
  std::map<std::string, WorkerRecord> remembered_;  // by model_id: the worker that left last
  std::map<std::string, Text> texts_;               // by model_id
  // By index, contiguous since each decision reads them all; without what changes with time alone.
  std::vector<WorkerView> views_;
  Micros calm_from_ = 0;  // from then on no worker is ejected or starts slowly
  // By model_id: what every request needs, valid until a worker changes.
  mutable std::map<std::string, ModelWorkers> listed_;
  mutable std::vector<std::optional<PoolCapacity>> capacities_;  // by pool, in the same way
};

}  // namespace quire
