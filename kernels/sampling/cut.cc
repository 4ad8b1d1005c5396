#include <algorithm>
#include <array>

#include "kernels/sampling/sampler.h"

namespace quire::kernels::sampling {
namespace {

constexpr int kBins = 2048;

// One digit of the radix search: among candidates whose order agrees with `prefix` above the digit,
// finds the digit at which the weights, added from the highest digit down, reach what is left of
// the target.
struct Digit {
  int shift;
  int bits;
};

uint64_t WeightOf(const Candidates& c, CutBy by, size_t i) {
  return by == CutBy::kCount ? 1 : c.mass[i];
}

// Returns the digit; `above` grows by the weights of higher digits.
uint32_t SearchDigit(const Candidates& c, CutBy by, Digit digit, uint64_t prefix, uint64_t target,
                     uint64_t& above) {
  std::array<uint64_t, kBins> weights{};
  const uint32_t mask = (1u << digit.bits) - 1;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    const uint64_t order = c.order[i];
    if ((order >> (digit.shift + digit.bits)) != prefix) continue;
    weights[(order >> digit.shift) & mask] += WeightOf(c, by, i);
  }
  uint32_t value = mask;
  while (value > 0 && above + weights[value] < target) above += weights[value--];
  return value;
}

}  // namespace

void Cut(Candidates& c, CutBy by, uint64_t target) {
  if (c.ids.empty()) return;
  target = std::max<uint64_t>(target, 1);
  uint64_t total = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) total += WeightOf(c, by, i);
  if (total <= target && by == CutBy::kCount) return;
  target = std::min(target, total);

  uint64_t prefix = 0;
  uint64_t above = 0;
  for (const Digit digit : {Digit{21, 11}, Digit{10, 11}, Digit{0, 10}}) {
    const uint32_t value = SearchDigit(c, by, digit, prefix, target, above);
    prefix = (prefix << digit.bits) | value;
  }
  // Candidates above the threshold stay; of those at it, as many of the lowest ids as the target
  // needs.
  const uint32_t threshold = static_cast<uint32_t>(prefix);
  size_t kept = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    if (c.order[i] < threshold) continue;
    if (c.order[i] == threshold) {
      if (above >= target) continue;
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
