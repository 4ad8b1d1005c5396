// Which of 64 workers hold a block: a flat table from the block's hash to one bit per worker.
//
// Owner: CacheIndex. Open addressing with linear probing. A slot whose last holder is gone stays in
// place, so that probes go on past it, and is dropped by the next rehash.
//  1. A hash stands in at most one slot.
//  2. At most kMaxFill of the slots are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/huge_pages.h"

namespace quire {

class HolderTable {
 public:
  static constexpr int kWorkers = 64;
  static constexpr size_t kSlotBytes = 16;

  // Sets bit `worker`. False when the table would have to grow past `max_bytes`: nothing is
  // changed.
  bool Add(uint64_t hash, int worker, size_t max_bytes);
  // A hash that nobody holds is ignored.
  void Remove(uint64_t hash, int worker);
  // Clears the bit everywhere: one pass over the table.
  void RemoveWorker(int worker);

  uint64_t Holders(uint64_t hash) const;
  // Asks the cache for the hash's slot: for those who look up several in a row.
  void Prefetch(uint64_t hash) const;

  size_t Bytes() const { return slots_.size() * kSlotBytes; }
  size_t HeldCount() const;  // hashes with a holder: counts, for tests
  void CheckInvariants() const;

 private:
  struct Slot {
    uint64_t hash = 0;  // 0: never used
    uint64_t holders = 0;
  };
  static_assert(sizeof(Slot) == kSlotBytes);

  static uint64_t Key(uint64_t hash) { return hash == 0 ? 1 : hash; }
  size_t Home(uint64_t key) const;
  size_t Find(uint64_t key) const;  // its slot, or the free one where it would go
  void Rehash(size_t slot_count);

  using Slots = std::vector<Slot, HugePageAllocator<Slot>>;
  Slots slots_;
  size_t used_ = 0;  // slots with a hash
};

}  // namespace quire
