// The routers that receive cache events, and the snapshots that are under way for them.
//
// Owner: Engine, on its thread. A snapshot walks the index in slices while steps continue, so it is
// fuzzy. Its parts and the events leave in the order in which they were made, and both are
// operations on a set, so its reader is exact once the last part has come. Invariants:
// 1. A router has at most one snapshot: a newer request replaces the older one.
// 2. No more than kSnapshotWindow parts (and the rest of a slice) of a snapshot wait to be sent.
// 3. A slice looks at no more than kSliceNodes blocks; one slice is made at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/ids.h"
#include "worker/core/engine_io.h"
#include "worker/kv/kv_cache.h"

namespace quire {

// A part with this many hashes and their parents is a chunk of less than 64 KiB.
inline constexpr int32_t kSliceNodes = 4000;

class CacheReports {
 public:
  // A slice looks at `slice_nodes` nodes, at most kSliceNodes.
  explicit CacheReports(int32_t slice_nodes);

  void Watch(RouterInstance router) { watchers_.insert(router); }
  void Forget(RouterInstance router);
  // Whether some router receives events.
  bool watched() const { return !watchers_.empty(); }

  void Begin(RouterInstance router, uint64_t snapshot_number);
  // The router's session has sent this many parts.
  void PartsSent(RouterInstance router, uint64_t snapshot_number, uint32_t parts);

  // Whether a slice can be made now.
  bool Pending() const;
  // The next slice of the next snapshot in turn.
  void Slice(KvCache& cache, std::vector<SnapshotPart>& parts);

 private:
  struct Snapshot {
    uint64_t number = 0;
    NodeId cursor = 0;
    uint32_t next_index = 0;
    int64_t unsent = 0;  // parts
  };
  static bool Ready(const Snapshot& snapshot) { return snapshot.unsent < kSnapshotWindow; }

  const int32_t slice_nodes_;
  std::set<RouterInstance> watchers_;
  std::map<RouterInstance, Snapshot> snapshots_;
  RouterInstance last_served_;
};

}  // namespace quire
