#include "router/fleet/holder_table.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/check.h"

namespace quire {
namespace {

constexpr size_t kFirstCapacity = 512;
constexpr size_t kMaxCapacity = size_t{1} << 30;  // a place has 31 bits for a number
// Reads that are started together: as many as a core keeps under way, and few where a chain ends
// early.
constexpr size_t kFewAtOnce = 8;
constexpr size_t kManyAtOnce = 32;

// Block hashes are uniform, but a hostile worker may send any: mixing keeps its chains from
// colliding with the probes of others.
uint64_t Mixed(uint64_t hash) { return (hash ^ (hash >> 32)) * 0x9E3779B97F4A7C15ull; }

}  // namespace

size_t HolderTable::Home(uint64_t mixed) const {
  return static_cast<size_t>(mixed >> 20) & (places_.size() - 1);
}

size_t HolderTable::Candidate(uint64_t mixed, size_t at) const {
  const Place tag = TagOf(mixed);
  while (places_[at] != 0 && (places_[at] & ~number_mask_) != tag) {
    at = (at + 1) & (places_.size() - 1);
  }
  return at;
}

size_t HolderTable::Find(uint64_t hash) const {
  QUIRE_CHECK(!places_.empty());
  const uint64_t mixed = Mixed(hash);
  size_t at = Candidate(mixed, Home(mixed));
  while (places_[at] != 0 && slots_[(places_[at] & number_mask_) - 1].hash != hash) {
    at = Candidate(mixed, (at + 1) & (places_.size() - 1));
  }
  return at;
}

const HolderTable::Slot* HolderTable::SlotOf(uint64_t hash) const {
  if (places_.empty()) return nullptr;
  const Place place = places_[Find(hash)];
  return place == 0 ? nullptr : &slots_[(place & number_mask_) - 1];
}

void HolderTable::Resize(size_t capacity) {
  QUIRE_CHECK(std::has_single_bit(capacity) && capacity <= kMaxCapacity);
  std::erase_if(slots_, [](const Slot& slot) { return slot.holders == 0; });
  QUIRE_CHECK(slots_.size() < capacity);
  if (capacity != capacity_) {
    Huge<Slot> more;
    more.reserve(capacity);
    more.assign(slots_.begin(), slots_.end());
    slots_.swap(more);
    Huge<Place>(2 * capacity).swap(places_);
    capacity_ = capacity;
    number_mask_ = static_cast<Place>(2 * capacity - 1);
  } else {
    std::fill(places_.begin(), places_.end(), 0);
  }
  for (size_t number = 1; number <= slots_.size(); ++number) {
    const uint64_t mixed = Mixed(slots_[number - 1].hash);
    size_t at = Home(mixed);
    while (places_[at] != 0) at = (at + 1) & (places_.size() - 1);
    places_[at] = TagOf(mixed) | static_cast<Place>(number);
  }
}

bool HolderTable::Add(uint64_t hash, int worker, size_t max_bytes) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  const uint64_t bit = uint64_t{1} << worker;
  if (capacity_ == 0) {
    if (kFirstCapacity * kSlotBytes > max_bytes) return false;
    Resize(kFirstCapacity);
  }
  size_t at = Find(hash);
  if (places_[at] != 0) {
    slots_[(places_[at] & number_mask_) - 1].holders |= bit;
    return true;
  }
  if (slots_.size() == capacity_) {
    // Twice the size, or the same size without the slots that have no holders any more.
    const size_t held = HeldCount();
    const bool grows = held >= capacity_ / 4 * 3;
    const bool may_grow = 2 * capacity_ <= kMaxCapacity && 2 * capacity_ * kSlotBytes <= max_bytes;
    // If little became free, the next pass over the table would follow soon.
    if (!may_grow && held > capacity_ / 8 * 7) return false;
    Resize(grows && may_grow ? 2 * capacity_ : capacity_);
    at = Find(hash);
  }
  slots_.push_back({hash, bit});
  places_[at] = TagOf(Mixed(hash)) | static_cast<Place>(slots_.size());
  return true;
}

void HolderTable::Remove(uint64_t hash, int worker) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  if (places_.empty()) return;
  const Place place = places_[Find(hash)];
  if (place != 0) slots_[(place & number_mask_) - 1].holders &= ~(uint64_t{1} << worker);
}

void HolderTable::RemoveWorker(int worker) {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  const uint64_t others = ~(uint64_t{1} << worker);
  for (Slot& slot : slots_) slot.holders &= others;
}

uint64_t HolderTable::Holders(uint64_t hash) const {
  const Slot* slot = SlotOf(hash);
  return slot == nullptr ? 0 : slot->holders;
}

// Prefetches are in separate loops and not in a function: the compiler treats a function that does
// nothing else as one without effect, and drops its calls.
void HolderTable::HoldersOfScattered(std::span<const uint64_t> hashes, Cursor& cursor,
                                     std::span<uint64_t> rows) const {
  QUIRE_CHECK(hashes.size() <= kManyAtOnce);
  std::array<Place, kManyAtOnce> places;
  for (const uint64_t hash : hashes) __builtin_prefetch(&places_[Home(Mixed(hash))]);
  for (size_t i = 0; i < hashes.size(); ++i) {
    const uint64_t mixed = Mixed(hashes[i]);
    places[i] = places_[Candidate(mixed, Home(mixed))];
    if (places[i] != 0) __builtin_prefetch(&slots_[(places[i] & number_mask_) - 1]);
  }
  for (size_t i = 0; i < hashes.size(); ++i) {
    const Slot* slot = places[i] == 0 ? nullptr : &slots_[(places[i] & number_mask_) - 1];
    if (slot != nullptr && slot->hash != hashes[i]) slot = SlotOf(hashes[i]);
    rows[i] = slot == nullptr ? 0 : slot->holders;
    cursor.slot = slot == nullptr ? SIZE_MAX : static_cast<size_t>(slot - slots_.data()) + 1;
  }
}

void HolderTable::HoldersOf(std::span<const uint64_t> hashes, Cursor& cursor,
                            std::span<uint64_t> rows) const {
  QUIRE_CHECK(rows.size() == hashes.size());
  if (places_.empty()) {
    std::fill(rows.begin(), rows.end(), 0);
    return;
  }
  constexpr size_t kAhead = 32;  // slots: eight cache lines, for the end of a page
  size_t at_once = kFewAtOnce;
  for (size_t i = 0; i < hashes.size();) {
    if (cursor.slot < slots_.size() && slots_[cursor.slot].hash == hashes[i]) {
      __builtin_prefetch(slots_.data() + cursor.slot + kAhead);
      rows[i++] = slots_[cursor.slot++].holders;
      at_once = kFewAtOnce;
      continue;
    }
    const size_t count = std::min(at_once, hashes.size() - i);
    HoldersOfScattered(hashes.subspan(i, count), cursor, rows.subspan(i, count));
    at_once = std::min(2 * at_once, kManyAtOnce);
    i += count;
  }
}

size_t HolderTable::HeldCount() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(),
                                           [](const Slot& slot) { return slot.holders != 0; }));
}

size_t HolderTable::HeldBy(int worker) const {
  QUIRE_CHECK(worker >= 0 && worker < kWorkers);
  const uint64_t bit = uint64_t{1} << worker;
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(),
                                           [bit](const Slot& slot) { return slot.holders & bit; }));
}

void HolderTable::CheckInvariants() const {
  QUIRE_CHECK(places_.size() == 2 * capacity_ && slots_.size() <= capacity_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    QUIRE_CHECK_MSG(SlotOf(slots_[i].hash) == &slots_[i], "a hash stands twice or cannot be found");
  }
  const size_t used =
      places_.size() - static_cast<size_t>(std::count(places_.begin(), places_.end(), Place{0}));
  QUIRE_CHECK(used == slots_.size());
}

}  // namespace quire
