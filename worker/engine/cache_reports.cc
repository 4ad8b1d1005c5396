#include "worker/engine/cache_reports.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

CacheReports::CacheReports(int32_t slice_nodes) : slice_nodes_(slice_nodes) {
  QUIRE_CHECK(slice_nodes_ > 0 && slice_nodes_ <= kSliceNodes);
}

void CacheReports::Forget(RouterInstance router) {
  watchers_.erase(router);
  snapshots_.erase(router);
}

void CacheReports::Begin(RouterInstance router, uint64_t snapshot_number) {
  snapshots_[router] = {.number = snapshot_number};
}

void CacheReports::PartsSent(RouterInstance router, uint64_t snapshot_number, uint32_t parts) {
  const auto found = snapshots_.find(router);
  if (found == snapshots_.end() || found->second.number != snapshot_number) return;
  QUIRE_CHECK(found->second.unsent >= 0);
  found->second.unsent = std::max<int64_t>(0, found->second.unsent - parts);
}

bool CacheReports::Pending() const {
  return std::any_of(snapshots_.begin(), snapshots_.end(),
                     [](const auto& entry) { return Ready(entry.second); });
}

void CacheReports::Slice(KvCache& cache, std::vector<SnapshotPart>& parts) {
  if (!Pending()) return;
  // Round robin: the first that is ready after the one served last.
  auto at = snapshots_.upper_bound(last_served_);
  for (size_t i = 0; i <= snapshots_.size(); ++i) {
    if (at == snapshots_.end()) at = snapshots_.begin();
    if (Ready(at->second)) break;
    ++at;
  }
  last_served_ = at->first;
  Snapshot& snapshot = at->second;
  QUIRE_CHECK_MSG(Ready(snapshot), "a snapshot was pending and none is ready");
  std::vector<SnapshotPart> by_kind(cache.shape().kinds.size());
  snapshot.cursor = cache.Scan(snapshot.cursor, slice_nodes_,
                               [&by_kind](int32_t kind, uint64_t hash, uint64_t parent) {
                                 SnapshotPart& part = by_kind[static_cast<size_t>(kind)];
                                 part.hashes.push_back(hash);
                                 part.parents.push_back(parent);
                               });
  const bool last = snapshot.cursor == kNoNode;
  const uint64_t event_seq = cache.events().Seq();
  for (size_t kind = 0; kind < by_kind.size(); ++kind) {
    SnapshotPart& part = by_kind[kind];
    part.last = last && kind + 1 == by_kind.size();
    if (part.hashes.empty() && !part.last) continue;
    part.router = at->first;
    part.snapshot_number = snapshot.number;
    part.index = snapshot.next_index++;
    part.cache_kind = static_cast<uint32_t>(kind);
    part.event_seq = event_seq;
    QUIRE_CHECK(part.hashes.size() == part.parents.size());
    QUIRE_CHECK(part.hashes.size() <= static_cast<size_t>(kSliceNodes));
    ++snapshot.unsent;
    parts.push_back(std::move(part));
  }
  if (last) snapshots_.erase(at);
}

}  // namespace quire
