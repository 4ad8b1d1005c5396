#include "worker/adapters/adapter_table.h"

#include <algorithm>
#include <utility>

namespace quire {

std::optional<int> AdapterTable::SlotOf(std::string_view digest) const {
  const auto found = std::find(slots_.begin(), slots_.end(), digest);
  if (found == slots_.end()) return std::nullopt;
  return static_cast<int>(found - slots_.begin());
}

int64_t AdapterTable::BytesOf(std::string_view digest) const {
  for (const AdapterInfo& adapter : adapters_) {
    if (adapter.digest == digest) return adapter.bytes;
  }
  return 0;
}

std::optional<int> AdapterTable::Add(AdapterInfo adapter) {
  std::optional<int> slot = SlotOf(adapter.digest);
  if (!slot.has_value()) {
    if (static_cast<int>(slots_.size()) >= max_loras_) return std::nullopt;
    slot = static_cast<int>(slots_.size());
    slots_.push_back(adapter.digest);
  }
  adapters_.push_back(std::move(adapter));
  return slot;
}

}  // namespace quire
