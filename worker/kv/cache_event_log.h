// What has been published and withdrawn since the log was last taken, numbered in the order in
// which it happened.
//
// Owner: KvCache, on the engine's thread. Reused memory: nothing is allocated once it has grown.
// Invariants:
// 1. Events are numbered from 1 without gaps, whether anybody takes them or not.
// 2. An event never grows after its number has been told (Seq).
#pragma once

#include <cstdint>
#include <vector>

#include "common/wire.h"

namespace quire {

class CacheEventLog {
 public:
  // The largest event: longer chains take several.
  static constexpr size_t kMaxHashes = 4096;

  void Stored(uint32_t cache_kind, uint64_t parent, uint64_t hash);
  void Removed(uint32_t cache_kind, uint64_t hash);
  void Cleared(uint32_t cache_kind);

  // The number of the last event; what happens from here on has a higher one.
  uint64_t Seq();
  // Of the first event that Take gives, when it gives any.
  uint64_t first_seq() const { return seq_ - events_.size() + 1; }

  // Hands out all events and forgets them. What `out` held is overwritten; its memory is used
  // again.
  void Take(std::vector<CacheEvents>& out);
  void Forget();

 private:
  struct Event {
    CacheEvents::Kind kind = CacheEvents::Kind::kStored;
    uint32_t cache_kind = 0;
    uint64_t parent = 0;
    size_t first = 0;  // of its hashes
    size_t count = 0;
  };
  static constexpr size_t kMaxSpare = 1024;
  Event& Add(CacheEvents::Kind kind, uint32_t cache_kind);

  std::vector<Event> events_;
  std::vector<uint64_t> hashes_;
  std::vector<CacheEvents> spare_;
  uint64_t seq_ = 0;
  bool open_ = false;  // the last event may still grow
};

}  // namespace quire
