// What has been published and withdrawn since the log was last taken, numbered in the order in
// which it happened.
//
// Owner: KvCache, on the engine's thread. Memory is reused: rounds of as many events as were
// reserved allocate nothing, once the readers of earlier events return them. Invariants:
// 1. Events are numbered from 1 without gaps, whether or not there is a reader.
// 2. An event never grows after its number has been reported (Seq).
#pragma once

#include <cstdint>
#include <vector>

#include "common/wire/values.h"

namespace quire {

class CacheEventLog {
 public:
  // The size of the largest event: longer chains need several.
  static constexpr size_t kMaxHashes = 4096;

  // Reserves memory for this many events in a round.
  void Reserve(size_t events);

  void Stored(uint32_t cache_kind, uint64_t parent, uint64_t hash);
  void Removed(uint32_t cache_kind, uint64_t hash);
  void Cleared(uint32_t cache_kind);

  // The number of the last event; later ones have higher numbers.
  uint64_t Seq();
  // The number of the first event that Take returns, if it returns any.
  uint64_t first_seq() const { return seq_ - events_.size() + 1; }

  // Returns all events and forgets them. `out` is overwritten; its memory is reused.
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
  // Events of up to this many hashes are kept apart from longer ones, which get room for any
  // number: so neither has to grow.
  static constexpr size_t kShort = 8;
  static constexpr size_t kMaxSpareLong = 64;

  Event& Add(CacheEvents::Kind kind, uint32_t cache_kind);
  void Keep(CacheEvents& event);
  void Reuse(size_t hash_count, std::vector<CacheEvents>& out);

  std::vector<Event> events_;
  std::vector<uint64_t> hashes_;
  std::vector<CacheEvents> spare_short_;
  std::vector<CacheEvents> spare_long_;
  size_t reserved_ = 0;
  uint64_t seq_ = 0;
  bool open_ = false;  // the last event may still grow
};

}  // namespace quire
