// Which of 64 workers hold a block: from the block's hash to one bit per worker.
//
// Owner: CacheIndex. Slots are in the order in which their hashes were first reported, and a
// directory (open addressing, linear probing) leads from a hash to its slot. Workers report the
// blocks of a chain one after the other, so a prompt's blocks are side by side: a reader that has
// found the first one reads on, where a plain hash table would miss the caches at each. A slot
// whose last holder is gone stays, and is dropped when the slots are used up.
//  1. A hash is in at most one slot, and each slot is found through the directory.
//  2. At most half of the directory is in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/huge_pages.h"

namespace quire {

class HolderTable {
 public:
  static constexpr int kWorkers = 64;
  static constexpr size_t kSlotBytes = 24;  // with its two places in the directory

  // Sets bit `worker`. False when the table would have to grow past `max_bytes`: nothing is
  // changed.
  bool Add(uint64_t hash, int worker, size_t max_bytes);
  // A hash without holders is ignored.
  void Remove(uint64_t hash, int worker);
  // Clears the bit everywhere: one pass over the table.
  void RemoveWorker(int worker);

  uint64_t Holders(uint64_t hash) const;
  // Where the block after the last one read is, if its chain was reported in one go.
  struct Cursor {
    size_t slot = SIZE_MAX;
  };
  // Holders of each of `hashes`. `cursor` says where the first one may be, and is moved past the
  // last. Requires: rows.size() == hashes.size().
  void HoldersOf(std::span<const uint64_t> hashes, Cursor& cursor, std::span<uint64_t> rows) const;

  size_t Bytes() const { return capacity_ * kSlotBytes; }
  size_t HeldCount() const;         // hashes with a holder: counts, for tests
  size_t HeldBy(int worker) const;  // hashes that it holds: one pass over the table
  void CheckInvariants() const;

 private:
  struct Slot {
    uint64_t hash = 0;
    uint64_t holders = 0;
  };
  // 0, or a slot's number plus 1 in the low bits, and as much of the mixed hash as fits in the
  // rest.
  using Place = uint32_t;
  static_assert(sizeof(Slot) + 2 * sizeof(Place) == kSlotBytes);

  size_t Home(uint64_t mixed) const;
  Place TagOf(uint64_t mixed) const { return static_cast<Place>(mixed >> 32) & ~number_mask_; }
  // The place of the first slot that may be this hash's, or an empty one.
  size_t Candidate(uint64_t mixed, size_t at) const;
  size_t Find(uint64_t hash) const;  // its place, or the empty one where it would go
  const Slot* SlotOf(uint64_t hash) const;
  void Resize(size_t capacity);  // drops the slots without holders
  void HoldersOfScattered(std::span<const uint64_t> hashes, Cursor& cursor,
                          std::span<uint64_t> rows) const;

  template <class T>
  using Huge = std::vector<T, HugePageAllocator<T>>;
  Huge<Slot> slots_;  // slots in use
  Huge<Place> places_;
  size_t capacity_ = 0;  // slots that there is room for: a power of two, half of the places
  Place number_mask_ = 0;
};

}  // namespace quire
