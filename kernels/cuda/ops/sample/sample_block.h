// What the threads of a sampling block share: reductions of integers, and histograms of weights.
//
// Sums of 64-bit integers and maxima of keys do not depend on the order in which threads come.
#pragma once

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/sample/sample.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / kWarpSize;
inline constexpr int kSampleBins = 2048;
inline constexpr int kDigitBins = 256;
inline constexpr int kListed = 1792;  // tokens of a cut's bin that are searched separately

// The bin at which the weights of bins, added from the first bin on, reach a target.
struct Crossing {
  int32_t bin = 0;
  int32_t all = 1;     // 1: there is nothing to cut, every token is kept
  uint64_t above = 0;  // weight of the bins before
  uint64_t target = 0;
};

// The block's shared memory, before the logits that it keeps.
struct SampleShared {
  DeviceSampleRow row;
  uint64_t words[kSampleWarps];
  uint64_t keys[kSampleWarps];
  Crossing crossing;
  uint32_t listed;
  uint32_t low[kSampleBins];
  uint32_t high[kSampleBins];
  int32_t list_ids[kListed];
  float list_values[kListed];
};
inline constexpr int kSampleFixedBytes = (sizeof(SampleShared) + 127) / 128 * 128;

// The same sum in every thread.
QUIRE_DEVICE uint64_t BlockSum(SampleShared& shared, uint64_t x) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) x += ShuffleXor(x, mask);
  BlockBarrier();  // the words of an earlier sum have been read
  if (Lane() == 0) shared.words[WarpIndex()] = x;
  BlockBarrier();
  uint64_t total = 0;
  for (int warp = 0; warp < kSampleWarps; ++warp) total += shared.words[warp];
  return total;
}

// A key and, among equal keys, the lowest id.
struct KeyedId {
  uint64_t key = 0;
  uint32_t id = 0xffffffffu;

  QUIRE_DEVICE void Take(uint64_t other_key, uint32_t other_id) {
    if (other_key > key || (other_key == key && other_id < id)) {
      key = other_key;
      id = other_id;
    }
  }
};

QUIRE_DEVICE KeyedId BlockBest(SampleShared& shared, KeyedId x) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const uint64_t key = ShuffleXor(x.key, mask);
    const uint32_t id = ShuffleXor(x.id, mask);
    x.Take(key, id);
  }
  BlockBarrier();
  if (Lane() == 0) {
    shared.keys[WarpIndex()] = x.key;
    shared.words[WarpIndex()] = x.id;
  }
  BlockBarrier();
  KeyedId best;
  for (int warp = 0; warp < kSampleWarps; ++warp) {
    best.Take(shared.keys[warp], static_cast<uint32_t>(shared.words[warp]));
  }
  return best;
}

// Empties the first `count` bins; they may be added to after the barrier.
QUIRE_DEVICE void ClearBins(SampleShared& shared, int count) {
  BlockBarrier();
  for (int i = ThreadIndex(); i < count; i += kSampleThreads) {
    shared.low[i] = 0;
    shared.high[i] = 0;
  }
  BlockBarrier();
}

// A 64-bit sum in two words of 32 bits; hardware can add to each atomically: the thread that makes
// the low one overflow carries.
QUIRE_DEVICE void AddToBin(SampleShared& shared, int bin, uint64_t weight) {
  const uint32_t low = static_cast<uint32_t>(weight);
  const uint32_t before = AtomicAdd(&shared.low[bin], low);
  const uint32_t carry = static_cast<uint32_t>(before + low) < before ? 1u : 0u;
  const uint32_t high = static_cast<uint32_t>(weight >> 32) + carry;
  if (high != 0) AtomicAdd(&shared.high[bin], high);
}

QUIRE_DEVICE uint64_t BinWeight(const SampleShared& shared, int bin) {
  return static_cast<uint64_t>(shared.high[bin]) << 32 | shared.low[bin];
}

// The target of a cut: a number of tokens, or a share of the mass of all that are in play.
struct CutTarget {
  bool by_mass = false;
  bool known = false;  // `weight` is the target
  uint64_t weight = 0;
  float share = 1.0f;
};

// The first bin of kBins at which `base` and the bins so far reach the target. `first_pass`: the
// pass over all tokens in play, whose total determines the target.
template <int kBins>
QUIRE_DEVICE Crossing FindCrossing(SampleShared& shared, const CutTarget& cut, bool first_pass,
                                   uint64_t base) {
  constexpr int kOfLane = kBins / kWarpSize;
  BlockBarrier();
  if (WarpIndex() == 0) {
    const int first = Lane() * kOfLane;
    uint64_t own = 0;
    for (int i = 0; i < kOfLane; ++i) own += BinWeight(shared, first + i);
    uint64_t upto = own;
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint64_t other = Shuffle(upto, Lane() >= step ? Lane() - step : Lane());
      if (Lane() >= step) upto += other;
    }
    const uint64_t total = Shuffle(upto, kWarpSize - 1);
    uint64_t target = cut.weight;
    if (first_pass) {
      if (!cut.known) target = sampling::ShareOf(cut.share, total);
      target = target < 1 ? 1 : target;
      if (Lane() == 0) {
        shared.crossing = Crossing{};
        shared.crossing.all = total == 0 || (!cut.by_mass && total <= target) ? 1 : 0;
      }
      target = target < total ? target : total;
    }
    WarpBarrier();
    uint64_t above = base + upto - own;
    const bool here = above < target && target <= base + upto;
    // In one lane, unless a rank sent invalid bins.
    const uint32_t lanes = Ballot(here);
    if (here && (lanes & ((1u << Lane()) - 1u)) == 0) {
      int bin = first;
      while (above + BinWeight(shared, bin) < target) above += BinWeight(shared, bin++);
      shared.crossing.bin = bin;
      shared.crossing.above = above;
      shared.crossing.target = target;
    }
  }
  BlockBarrier();
  return shared.crossing;
}

}  // namespace quire::kernels::cuda
