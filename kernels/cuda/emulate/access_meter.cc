#include "kernels/cuda/emulate/access_meter.h"

#include <algorithm>

namespace quire::kernels::cuda::emulate {
namespace {
constexpr uint32_t kSectorBytes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr uint64_t kHash = 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio
}  // namespace

uint32_t ExtraPasses(const uint32_t* offsets, uint32_t count) {
  uint32_t in_group[8] = {};
  uint32_t most = 0;
  for (uint32_t i = 0; i < count; ++i) {
    bool again = false;
    for (uint32_t j = 0; j < i; ++j) again = again || offsets[j] == offsets[i];
    if (again) continue;
    const uint32_t passes = ++in_group[offsets[i] / 16 % 8];
    if (passes > most) most = passes;
  }
  return most > 1 ? most - 1 : 0;
}

uint32_t BankCost(const WarpAccess& access) {
  uint32_t extra = 0;
  for (uint32_t quarter = 0; quarter < 4; ++quarter) {
    uint32_t offsets[8];
    uint32_t count = 0;
    for (uint32_t lane = 8 * quarter; lane < 8 * quarter + 8; ++lane) {
      if ((access.lanes >> lane & 1u) != 0) offsets[count++] = access.offset[lane];
    }
    extra += ExtraPasses(offsets, count);
  }
  return extra;
}

uint32_t SectorCost(const WarpAccess& access) {
  // An access spans two at most; longer ones are rare and counted.
  std::array<uint32_t, 64> sectors;
  uint32_t count = 0;
  uint32_t more = 0;
  bool in_order = true;  // as lanes that lie side by side are: each sector is listed once
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((access.lanes >> lane & 1u) == 0) continue;
    const uint32_t first = access.offset[lane] / kSectorBytes;
    const uint32_t last = (access.offset[lane] + access.bytes - 1) / kSectorBytes;
    if (count == 0 || sectors[count - 1] != first) {
      in_order = in_order && (count == 0 || sectors[count - 1] < first);
      sectors[count++] = first;
    }
    if (last > first) sectors[count++] = last;
    if (last > first + 1) more += last - first - 1;
  }
  if (!in_order) {
    std::sort(sectors.begin(), sectors.begin() + count);
    const auto end = std::unique(sectors.begin(), sectors.begin() + count);
    count = static_cast<uint32_t>(end - sectors.begin());
  }
  return (count + more) * kSectorBytes;
}

uint32_t AccessMeter::IndexOf(const void* site) {
  if (2 * sites_.size() >= slots_.size()) {
    slots_.assign(std::max<size_t>(64, 2 * slots_.size()), 0);
    for (uint32_t i = 0; i < sites_.size(); ++i) *SlotOf(sites_[i].at) = i + 1;
  }
  uint32_t& slot = *SlotOf(site);
  if (slot == 0) {
    sites_.emplace_back().at = site;
    slot = static_cast<uint32_t>(sites_.size());
  }
  return slot - 1;
}

// The site's slot, or the free one that is its.
uint32_t* AccessMeter::SlotOf(const void* site) {
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(reinterpret_cast<uintptr_t>(site) * kHash >> 32) & mask;
  while (slots_[at] != 0 && sites_[slots_[at] - 1].at != site) at = (at + 1) & mask;
  return &slots_[at];
}

uint32_t AccessMeter::Note(const void* site, uint32_t lane, uint32_t offset, uint32_t bytes) {
  const uint32_t index = IndexOf(site);
  Site& at = sites_[index];
  if (!at.used) {
    at.used = true;
    used_.push_back(index);
  }
  const uint32_t number = at.done[lane]++ - at.first;
  while (at.accesses.size() <= number) at.accesses.emplace_back();
  WarpAccess& access = at.accesses[number];
  access.lanes |= 1u << lane;
  access.bytes = bytes;
  access.offset[lane] = offset;
  if (access.lanes != kAllLanes) return 0;
  const uint32_t cost = cost_(access);
  if (++at.complete == at.accesses.size()) {
    at.first += at.complete;
    at.complete = 0;
    at.accesses.clear();
  }
  return cost;
}

uint32_t AccessMeter::Finish() {
  uint32_t cost = 0;
  for (const uint32_t index : used_) {
    Site& site = sites_[index];
    for (const WarpAccess& access : site.accesses) {
      if (access.lanes != kAllLanes) cost += cost_(access);
    }
    site.accesses.clear();
    site.first = site.complete = 0;
    site.used = false;
    site.done.fill(0);
  }
  used_.clear();
  return cost;
}

void AccessMeter::Clear() {
  sites_.clear();
  slots_.clear();
  used_.clear();
}

}  // namespace quire::kernels::cuda::emulate
