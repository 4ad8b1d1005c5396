#include "router/fleet/holder_table.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace quire {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr size_t kSlotsPerLine = 64 / HolderTable::kSlotBytes;
// Of three slots at most two are in use.
bool Full(size_t used, size_t slots) { return used * 3 >= slots * 2; }

}  // namespace

// Block hashes are uniform, but a hostile worker may say what it likes: mixing keeps its chains
// from lining up with the probes of others.
size_t HolderTable::Home(uint64_t key) const {
  const uint64_t mixed = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ull;
  // At the beginning of a cache line, so that a probe seldom needs a second one.
  return static_cast<size_t>(mixed >> 20) & (slots_.size() - 1) & ~(kSlotsPerLine - 1);
}

size_t HolderTable::Find(uint64_t key) const {
  QUIRE_CHECK(!slots_.empty());
  size_t at = Home(key);
  while (slots_[at].hash != key && slots_[at].hash != 0) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void HolderTable::Rehash(size_t slot_count) {
  QUIRE_CHECK(std::has_single_bit(slot_count));
  Slots old(slot_count);
  old.swap(slots_);
  used_ = 0;
  for (const Slot& slot : old) {
    if (slot.holders == 0) continue;
    slots_[Find(slot.hash)] = slot;
    ++used_;
  }
  QUIRE_CHECK(!Full(used_, slots_.size()));
}

bool HolderTable::Add(uint64_t hash, int worker, size_t max_bytes) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  const uint64_t key = Key(hash);
  if (slots_.empty()) {
    if (kFirstSlots * kSlotBytes > max_bytes) return false;
    Rehash(kFirstSlots);
  }
  size_t at = Find(key);
  if (slots_[at].hash == 0) {
    if (Full(used_ + 1, slots_.size())) {
      // Twice the size, or the same size without the slots that nobody holds any more.
      const size_t held = HeldCount() + 1;
      size_t slot_count = slots_.size();
      if (Full(held * 3 / 2, slot_count)) slot_count *= 2;
      if (slot_count * kSlotBytes > max_bytes) {
        slot_count = slots_.size();
        // Where little would come free, the next pass over the table would follow soon.
        if (Full(held + slot_count / 8, slot_count)) return false;
      }
      Rehash(slot_count);
      at = Find(key);
    }
    slots_[at].hash = key;
    ++used_;
  }
  slots_[at].holders |= uint64_t{1} << worker;
  return true;
}

void HolderTable::Remove(uint64_t hash, int worker) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  if (slots_.empty()) return;
  slots_[Find(Key(hash))].holders &= ~(uint64_t{1} << worker);
}

void HolderTable::RemoveWorker(int worker) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  const uint64_t others = ~(uint64_t{1} << worker);
  for (Slot& slot : slots_) slot.holders &= others;
}

uint64_t HolderTable::Holders(uint64_t hash) const {
  return slots_.empty() ? 0 : slots_[Find(Key(hash))].holders;
}

void HolderTable::Prefetch(uint64_t hash) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[Home(Key(hash))]);
}

size_t HolderTable::HeldCount() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(),
                                           [](const Slot& slot) { return slot.holders != 0; }));
}

void HolderTable::CheckInvariants() const {
  size_t used = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].hash == 0) {
      QUIRE_CHECK(slots_[i].holders == 0);
      continue;
    }
    ++used;
    QUIRE_CHECK_MSG(Find(slots_[i].hash) == i, "a hash stands twice or cannot be found");
  }
  QUIRE_CHECK(used == used_);
  QUIRE_CHECK(slots_.empty() || !Full(used_, slots_.size() + 3));
}

}  // namespace quire
