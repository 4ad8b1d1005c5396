#include <algorithm>
#include <array>

#include "kernels/sampling/candidates.h"

namespace quire::kernels::sampling {
namespace {

constexpr int kBins = 2048;
constexpr size_t kFew = 4096;  // candidates for which clearing so many bins is most of the work

// A radix search for the order at which the weights, added from the highest order down, reach the
// target, one digit after another.
struct Search {
  const Candidates& c;
  CutBy by;
  uint64_t target;
  uint64_t prefix = 0;  // the digits found
  uint64_t above = 0;   // weight of candidates of higher order

  void NextDigit(int shift, int bits) {
    std::array<uint64_t, kBins> weights;
    const uint32_t mask = (1u << bits) - 1;
    std::fill_n(weights.begin(), mask + 1, 0);
    for (size_t i = 0; i < c.ids.size(); ++i) {
      const uint64_t order = c.order[i];
      if ((order >> (shift + bits)) != prefix) continue;
      weights[(order >> shift) & mask] += WeightOf(c, by, i);
    }
    uint32_t value = mask;
    while (value > 0 && above + weights[value] < target) above += weights[value--];
    prefix = (prefix << bits) | value;
  }
};

}  // namespace

uint64_t WeightOf(const Candidates& c, CutBy by, size_t i) {
  return by == CutBy::kCount ? 1 : c.mass[i];
}

void Cut(Candidates& c, CutBy by, uint64_t target) {
  if (c.ids.empty()) return;
  target = std::max<uint64_t>(target, 1);
  uint64_t total = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) total += WeightOf(c, by, i);
  if (total <= target && by == CutBy::kCount) return;
  target = std::min(target, total);

  Search search{c, by, target};
  if (c.ids.size() <= kFew) {
    for (const int shift : {24, 16, 8, 0}) search.NextDigit(shift, 8);
  } else {
    search.NextDigit(21, 11);
    search.NextDigit(10, 11);
    search.NextDigit(0, 10);
  }
  CutAt(c, by, {static_cast<uint32_t>(search.prefix), search.above, target});
}

void CutAt(Candidates& c, CutBy by, const CutPlace& place) {
  uint64_t above = place.above;
  size_t kept = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    if (c.order[i] < place.threshold) continue;
    if (c.order[i] == place.threshold) {
      if (above >= place.target) continue;
      above += WeightOf(c, by, i);
    }
    c.ids[kept] = c.ids[i];
    c.distance[kept] = c.distance[i];
    ++kept;
  }
  c.ids.resize(kept);
  c.distance.resize(kept);
}

}  // namespace quire::kernels::sampling
