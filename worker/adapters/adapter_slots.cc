#include "worker/adapters/adapter_slots.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "worker/adapters/adapter_table.h"

namespace quire {

AdapterSlots::AdapterSlots(const AdapterTable* table) {
  if (table == nullptr) return;
  slots_.resize(static_cast<size_t>(table->max_loras()));
  for (size_t i = 0; i < table->Slots().size(); ++i) slots_[i].digest = table->Slots()[i];
}

std::optional<int> AdapterSlots::SlotOf(std::string_view digest) const {
  if (digest.empty()) return std::nullopt;
  const auto found = std::ranges::find(slots_, digest, &Slot::digest);
  if (found == slots_.end()) return std::nullopt;
  return static_cast<int>(found - slots_.begin());
}

std::optional<int> AdapterSlots::Choose(const std::vector<bool>& in_use,
                                        std::span<const std::string> kept,
                                        std::span<const std::string> named) const {
  QUIRE_CHECK(in_use.size() == slots_.size());
  const auto is_in = [](std::span<const std::string> list, const std::string& digest) {
    return std::ranges::find(list, digest) != list.end();
  };
  std::optional<int> best;
  std::tuple<bool, bool, int64_t> best_worth;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool free = slot.digest.empty();
    if (!free && (in_use[i] || is_in(kept, slot.digest))) continue;
    const std::tuple worth(!free, !free && is_in(named, slot.digest), slot.used_us);
    if (best.has_value() && worth >= best_worth) continue;
    best = static_cast<int>(i);
    best_worth = worth;
  }
  return best;
}

void AdapterSlots::Put(int slot, std::string digest, int64_t now_us) {
  QUIRE_CHECK(!digest.empty() && !SlotOf(digest).has_value());
  slots_.at(static_cast<size_t>(slot)) = {std::move(digest), now_us};
}

}  // namespace quire
