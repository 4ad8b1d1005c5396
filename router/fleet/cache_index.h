// What every worker has cached, according to its events and snapshots: how much of a prompt each
// candidate would not have to compute.
//
// Owner: the dispatcher, on the router's executor. No I/O, no clock: time comes in as an argument.
// False data of a worker can cause a wrong choice of worker and nothing worse: data that does not
// fit makes the worker STALE and is counted.
//  1. Only an EXACT worker counts: in every other state its cached tokens are 0.
//  2. COLD → SYNCING → EXACT, and from any of them STALE, which requests a snapshot again. A lost
//     link makes a worker COLD: its entries are forgotten.
//  3. At most `max_snapshots` snapshots are requested at a time, each after a wait that grows with
//     the worker's failures until it has been EXACT for a while: forgetting a worker walks a table.
//  4. Tables take at most max_bytes (while one grows, its old half besides): a worker that would
//     need more is OVER_LIMIT until it attaches again.
//
// Snapshots are fuzzy: parts and events are set operations, applied in the order in which they
// come, so the state at the end marker is exact.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/cached_prefix.h"
#include "common/counted.h"
#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "router/core/limits.h"
#include "router/fleet/fleet.h"
#include "router/fleet/holder_table.h"
#include "router/fleet/prompt_chains.h"

namespace quire {

enum class CacheState : uint8_t { kNone, kCold, kSyncing, kExact, kStale, kOverLimit };
std::string_view CacheStateName(CacheState state);

// One part of a worker's answer to a snapshot request.
struct CacheSnapshotPart {
  uint64_t number = 0;  // of the request
  uint32_t cache_kind = 0;
  std::span<const uint64_t> hashes;
  bool last = false;
};

// What was known when a request was placed, kept until the worker reports what it found.
struct CachePrediction {
  bool made = false;  // the worker was EXACT
  uint32_t tokens = 0;
  uint64_t event_seq = 0;   // the last event that was known
  uint64_t generation = 0;  // of the worker's index
};

// Predictions compared with reality: a wrong one is a bug in the router or in the worker.
enum class CacheVerdict : uint8_t { kUnknown, kExact, kRaced, kWrong };

struct CacheIndexCounters {
  uint64_t predictions_exact = 0;
  uint64_t predictions_raced = 0;  // an event on that chain lay between
  uint64_t predictions_wrong = 0;
  uint64_t became_stale = 0;
  uint64_t snapshots = 0;
  uint64_t snapshots_delayed = 0;  // workers that waited for the snapshots of others to be complete
  uint64_t over_limit = 0;
};
inline constexpr Counted<CacheIndexCounters> kCacheIndexCounts[] = {
    {&CacheIndexCounters::became_stale, "quire_router_cache_index_stale_total",
     "Times that a worker's cache events had a gap."},
    {&CacheIndexCounters::snapshots, "quire_router_cache_index_snapshots_total",
     "Snapshots asked for."},
    {&CacheIndexCounters::snapshots_delayed, "quire_router_cache_index_snapshots_delayed_total",
     "Delayed by --max-snapshots."},
    {&CacheIndexCounters::over_limit, "quire_router_cache_index_over_limit_total",
     "Workers left out by --max-index-bytes."}};

class CacheIndex {
 public:
  static constexpr size_t kRecentEvents = 8192;  // per worker, to distinguish a race from an error
  static constexpr Micros kFirstRetry = 50'000;
  static constexpr Micros kLastRetry = 10'000'000;
  static constexpr Micros kSnapshotTimeout = 60'000'000;

  // `rng` outlives the index.
  CacheIndex(size_t max_bytes, uint32_t max_snapshots, Rng& rng)
      : max_bytes_(max_bytes), max_snapshots_(max_snapshots), rng_(rng) {}

  void Greeted(WorkerIndex worker, const WorkerHello& hello, Micros now);
  void Lost(WorkerIndex worker);
  void Stepped(WorkerIndex worker, const StepFrame& step, Micros now);
  void Snapshot(WorkerIndex worker, const CacheSnapshotPart& part, Micros now);

  // The next worker whose snapshot is to be requested, if one is due.
  struct Ask {
    WorkerIndex worker;
    uint64_t number = 0;
  };
  std::optional<Ask> NextAsk(Micros now);

  // Fills in cached_tokens.
  void Score(std::span<WorkerView> workers, PromptChains& chains) const;

  CachePrediction Predict(WorkerIndex worker, uint32_t cached_tokens) const;
  // Compares what the worker found at its event `lookup_seq` with the prediction, and counts the
  // result.
  CacheVerdict Judge(WorkerIndex worker, const CachePrediction& prediction, PromptChains& chains,
                     uint32_t real_tokens, uint64_t lookup_seq);

  CacheState state(WorkerIndex worker) const;
  // Blocks that the worker is known to hold, of all kinds: a pass over the tables, for operators
  // and tests.
  uint64_t BlocksOf(WorkerIndex worker) const;
  // The last event that was applied, or skipped by a snapshot; 0 while none is known.
  uint64_t EventSeqOf(WorkerIndex worker) const {
    return worker.value() < followers_.size() ? followers_[worker.value()].event_seq : 0;
  }
  size_t Bytes() const;
  const CacheIndexCounters& counters() const { return counters_; }
  void CheckInvariants() const;

 private:
  struct Follower {
    CacheState state = CacheState::kNone;
    std::string numerics_id;
    uint32_t block_size = 0;
    std::vector<CacheKind> kinds;
    uint64_t shape = 0;            // equal for workers whose three above are equal; 0: none yet
    uint64_t generation = 0;       // grows whenever EXACT is left
    uint64_t event_seq = 0;        // of the last event applied
    bool sequence_known = false;   // event_seq is of this snapshot
    uint64_t snapshot_number = 0;  // of the last request
    Micros ask_at = 0;             // no request before this time
    Micros asked_at = 0;
    Micros exact_at = 0;
    Micros retry = kFirstRetry;
    bool delayed = false;                              // its snapshot waits for those of others
    std::deque<std::pair<uint64_t, uint64_t>> recent;  // (seq, hash); hash 0: all
  };
  // 64 workers, a table for each cache kind.
  struct Shard {
    std::vector<HolderTable> kinds;
  };
  struct Group;

  Follower& Get(WorkerIndex worker);
  static bool SameShape(const Follower& a, const Follower& b);
  uint64_t ShapeOf(const Follower& follower);
  bool Apply(WorkerIndex worker, Follower& follower, const CacheEvents& event, uint64_t seq);
  bool Store(WorkerIndex worker, uint32_t kind, std::span<const uint64_t> hashes);
  void Remember(Follower& follower, uint64_t seq, uint64_t hash);
  void Forget(WorkerIndex worker);
  void MakeStale(WorkerIndex worker, Follower& follower, Micros now);
  void MakeOverLimit(WorkerIndex worker, Follower& follower);
  void ScoreGroup(const Group& group, std::span<WorkerView> workers, int64_t token_count) const;

  const size_t max_bytes_;
  const uint32_t max_snapshots_;
  Rng& rng_;
  std::vector<Follower> followers_;  // by WorkerIndex
  bool wanted_ = false;              // some worker may need a snapshot: checked with each frame
  std::vector<Shard> shards_;
  uint64_t last_shape_ = 0;
  CacheIndexCounters counters_;
};

}  // namespace quire
