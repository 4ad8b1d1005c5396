#include "kernels/cuda/emulate/access_meter.h"

#include <algorithm>

namespace quire::kernels::cuda::emulate {
namespace {
constexpr uint32_t kSectorBytes = 32;
}

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
  std::array<uint32_t, 64>
      sectors;  // an access spans two at most; longer ones are rare and counted
  uint32_t count = 0;
  uint32_t more = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((access.lanes >> lane & 1u) == 0) continue;
    const uint32_t first = access.offset[lane] / kSectorBytes;
    const uint32_t last = (access.offset[lane] + access.bytes - 1) / kSectorBytes;
    sectors[count++] = first;
    if (last > first) sectors[count++] = last;
    if (last > first + 1) more += last - first - 1;
  }
  std::sort(sectors.begin(), sectors.begin() + count);
  const auto end = std::unique(sectors.begin(), sectors.begin() + count);
  return (static_cast<uint32_t>(end - sectors.begin()) + more) * kSectorBytes;
}

uint32_t AccessMeter::Note(const void* site, uint32_t lane, uint32_t offset, uint32_t bytes) {
  Site& at = sites_[site];
  const uint32_t number = at.done[lane]++;
  const uint32_t index = number - at.first;
  while (at.accesses.size() <= index) at.accesses.emplace_back();
  WarpAccess& access = at.accesses[index];
  access.lanes |= 1u << lane;
  access.bytes = bytes;
  access.offset[lane] = offset;
  uint32_t cost = 0;
  while (!at.accesses.empty() && at.accesses.front().lanes == 0xffffffffu) {
    cost += cost_(at.accesses.front());
    at.accesses.pop_front();
    ++at.first;
  }
  return cost;
}

uint32_t AccessMeter::Finish() {
  uint32_t cost = 0;
  for (auto& [address, site] : sites_) {
    for (const WarpAccess& access : site.accesses) cost += cost_(access);
    site.accesses.clear();
    site.first = 0;
    site.done.fill(0);
  }
  return cost;
}

}  // namespace quire::kernels::cuda::emulate
