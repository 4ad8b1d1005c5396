#include "bench/mock/block_set.h"

#include <utility>

#include "worker/engine/cache_reports.h"

namespace quire::bench {

size_t BlockSet::Hits(std::span<const uint64_t> chain) const {
  size_t hits = 0;
  while (hits < chain.size() && held_.contains(chain[hits])) ++hits;
  return hits;
}

void BlockSet::Publish(uint64_t root, std::span<const uint64_t> chain, size_t limit) {
  uint64_t parent = root;
  CacheEvents stored;
  const auto tell = [&] {
    if (!stored.hashes.empty()) events_.push_back(std::exchange(stored, {}));
  };
  for (const uint64_t hash : chain) {
    if (held_.emplace(hash, parent).second) {
      age_.push_back(hash);
      if (stored.hashes.empty()) stored.parent = parent;
      stored.hashes.push_back(hash);
    } else {
      tell();
    }
    parent = hash;
  }
  tell();
  Shrink(limit);
}

void BlockSet::Shrink(size_t limit) {
  if (age_.size() <= limit) return;
  CacheEvents removed;
  removed.kind = CacheEvents::Kind::kRemoved;
  while (age_.size() > limit) {
    removed.hashes.push_back(age_.front());
    held_.erase(age_.front());
    age_.pop_front();
  }
  events_.push_back(std::move(removed));
}

void BlockSet::Snapshot(const SnapshotPart& head, std::vector<SnapshotPart>& parts) const {
  SnapshotPart part = head;
  for (const uint64_t hash : age_) {
    if (part.hashes.size() == static_cast<size_t>(kSliceNodes)) {
      parts.push_back(part);
      ++part.index;
      part.hashes.clear();
      part.parents.clear();
    }
    part.hashes.push_back(hash);
    part.parents.push_back(held_.at(hash));
  }
  part.last = true;
  parts.push_back(std::move(part));
}

}  // namespace quire::bench
