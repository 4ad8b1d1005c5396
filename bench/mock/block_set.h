// The blocks that a worker without a model reports as cached: a plain set of hashes, the oldest
// dropped first.
//
// Owner: PacedWorker. Hits end at the first block that is missing, so that a set that lost the
// beginning of a chain is reported correctly.
//  1. Every change is an event, in order; the code that numbers events takes them.
//  2. At most `limit` blocks are held, whatever is added.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/block_hash.h"
#include "worker/core/engine_io.h"

namespace quire::bench {

class BlockSet {
 public:
  // Blocks of a chain that are held, from its beginning.
  size_t Hits(std::span<const uint64_t> chain) const;
  // Adds what is missing of the chain whose first parent is `root`, and then keeps to `limit`.
  void Publish(uint64_t root, std::span<const uint64_t> chain, size_t limit);
  void Shrink(size_t limit);

  size_t size() const { return held_.size(); }
  // The events since the last call.
  std::vector<CacheEvents> TakeEvents() { return std::exchange(events_, {}); }
  // All of it, oldest first, in parts for one router.
  void Snapshot(const SnapshotPart& head, std::vector<SnapshotPart>& parts) const;

 private:
  std::unordered_map<uint64_t, uint64_t> held_;  // hash → parent; never iterated
  std::deque<uint64_t> age_;                     // keys of held_, oldest first
  std::vector<CacheEvents> events_;
};

}  // namespace quire::bench
