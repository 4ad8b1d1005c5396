// The published blocks as a router learns of them: by events and by snapshots, in the order in
// which they come.
//
// Owned by a test; its thread.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "worker/core/engine_io.h"

namespace quire::test {

// What a router that watches knows: (kind, hash) of every published block.
class Mirror {
 public:
  void Take(const EngineOutput& output) {
    size_t next = 0;
    for (const SnapshotPart& part : output.snapshot_parts) {
      while (next < output.events.size() && output.first_event_seq + next <= part.event_seq) {
        Apply(output.events[next++]);
      }
      if (part.index == 0) parts = 0;  // a newer snapshot has begun
      EXPECT_EQ(part.index, parts++);
      EXPECT_LE(part.hashes.size() * 16, (64u << 10) - 256);
      EXPECT_EQ(part.hashes.size(), part.parents.size());
      for (uint64_t hash : part.hashes) known.emplace(part.cache_kind, hash);
      complete = complete || part.last;
    }
    while (next < output.events.size()) Apply(output.events[next++]);
  }
  void Forget() {
    known.clear();
    complete = false;
  }

  std::set<std::pair<uint32_t, uint64_t>> known;
  uint32_t parts = 0;
  bool complete = false;

 private:
  void Apply(const CacheEvents& event) {
    for (uint64_t hash : event.hashes) {
      const std::pair<uint32_t, uint64_t> block{event.cache_kind, hash};
      if (event.kind == CacheEvents::Kind::kStored) known.insert(block);
      if (event.kind == CacheEvents::Kind::kRemoved) known.erase(block);
    }
  }
};

}  // namespace quire::test
