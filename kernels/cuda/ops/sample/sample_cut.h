// The tokens of a row that are in play, and the exact cuts among them.
//
// A cut keeps the shortest prefix, in the order (order descending, id ascending), whose weights
// reach a target. One pass makes a histogram over bins of equal width that the order never crosses,
// one lists the bin in which the target is reached; there it is found digit by digit, of the order
// and then of the id. Where that bin is too full for the list, the digits go over the row instead.
//
// Here a token's id is its place in the current row; places ascend as the ids of tokens do.
#pragma once

#include "kernels/cuda/ops/sample/sample_block.h"

namespace quire::kernels::cuda {

inline constexpr uint32_t kMinusInfinityBits = 0xff800000u;

QUIRE_DEVICE float Magnitude(float x) { return FloatOfBits(BitsOfFloat(x) & 0x7fffffffu); }

// One row of logits: its first ones in shared memory, the others in place.
struct RowOfLogits {
  float* global;
  float* cache;
  int cached;
  int count;
  int first_id = 0;              // token of the first place
  const int32_t* ids = nullptr;  // or that of each

  // The cache may be null where nothing is cached.
  QUIRE_DEVICE float Get(int id) const { return id < cached ? cache[id] : global[id]; }  // NOLINT
  QUIRE_DEVICE float* At(int id) const { return id < cached ? cache + id : global + id; }
  QUIRE_DEVICE int32_t TokenAt(int id) const { return ids != nullptr ? ids[id] : first_id + id; }
};

// The end of a cut: higher orders stay, and at this one the ids up to `last_id`.
struct Threshold {
  uint32_t order = 0;
  int32_t last_id = 0x7fffffff;

  QUIRE_DEVICE bool Keeps(uint32_t of_token, int id) const {
    return of_token > order || (of_token == order && id <= last_id);
  }
};

// Which tokens are in play. A token's value is its distance (z − peak) / temperature; with peak 0
// and temperature 1 it is the logit.
struct InPlay {
  float peak = 0.0f;
  float temperature = 1.0f;
  float min_p = 0.0f;
  Threshold nearest;  // in the order of values
  bool cut_to_typical = false;
  float mean = 0.0f;
  Threshold typical;  // in the order of distance to the mean

  QUIRE_DEVICE float ValueOf(float z) const { return (z - peak) / temperature; }
  QUIRE_DEVICE bool Has(int id, float value) const {
    if (BitsOfFloat(value) == kMinusInfinityBits) return false;
    if (min_p > 0.0f && !(sampling::ExpOfNegative(value) >= min_p)) return false;
    if (!nearest.Keeps(sampling::OrderedKey(value), id)) return false;
    return !cut_to_typical || typical.Keeps(~sampling::OrderedKey(Magnitude(value - mean)), id);
  }

  // f(id, value) of this thread's tokens.
  template <class F>
  QUIRE_DEVICE void Each(const RowOfLogits& row, const F& f) const {
    for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
      const float value = ValueOf(row.Get(id));
      if (Has(id, value)) f(id, value);
    }
  }
};

// How a cut orders and weighs values.
struct Measure {
  float origin = 0.0f;  // the largest value, or with `typical` the mean
  bool typical = false;
  bool by_mass = false;

  // Bins of 1/32; a token of a lower bin comes before one of a higher.
  QUIRE_DEVICE int BinOf(float value) const {
    const float away = (typical ? Magnitude(value - origin) : origin - value) * 32.0f;
    if (!(away < static_cast<float>(kSampleBins - 1))) return kSampleBins - 1;
    return away > 0.0f ? static_cast<int>(away) : 0;
  }
  QUIRE_DEVICE uint32_t OrderOf(float value) const {
    return typical ? ~sampling::OrderedKey(Magnitude(value - origin)) : sampling::OrderedKey(value);
  }
  QUIRE_DEVICE uint64_t WeightOf(float value) const {
    return by_mass ? sampling::Mass(sampling::ExpOfNegative(value)) : 1;
  }
};

// The tokens of one bin: from the list when it holds them all, otherwise from the row.
struct BinTokens {
  const RowOfLogits& row;
  const InPlay& in_play;
  const Measure& measure;
  int bin;

  // f(id, value) of this thread's.
  template <class F>
  QUIRE_DEVICE void Each(const SampleShared& shared, const F& f) const {
    const uint32_t listed = shared.listed;
    if (listed <= kListed) {
      for (uint32_t i = ThreadIndex(); i < listed; i += kSampleThreads) {
        f(shared.list_ids[i], shared.list_values[i]);
      }
      return;
    }
    in_play.Each(row, [&](int id, float value) {
      if (measure.BinOf(value) == bin) f(id, value);
    });
  }
};

// Lists the tokens that `wanted` selects, as far as there is room; their number is in
// shared.listed.
template <class F>
QUIRE_DEVICE void List(SampleShared& shared, const RowOfLogits& row, const InPlay& in_play,
                       const F& wanted) {
  BlockBarrier();
  if (ThreadIndex() == 0) shared.listed = 0;
  BlockBarrier();
  in_play.Each(row, [&](int id, float value) {
    if (!wanted(id, value)) return;
    const uint32_t at = AtomicAdd(&shared.listed, 1u);
    if (at >= kListed) return;
    shared.list_ids[at] = id;
    shared.list_values[at] = value;
  });
  BlockBarrier();
}

// A digit of the order: those of a higher one come first. For a digit of the id the lower one comes
// first.
inline constexpr int kOrderDigits = 4;
inline constexpr int kIdDigits = 3;  // a vocabulary has fewer than 2^24 ids

// Whether digits at `shift` and above it are those found, and the one at `shift`.
QUIRE_DEVICE bool HasPrefix(uint32_t number, int shift, uint32_t prefix) {
  return shift == 24 || (number >> (shift + 8)) == prefix;
}
QUIRE_DEVICE int DigitOf(uint32_t number, int shift) {
  return static_cast<int>((number >> shift) & 255u);
}

// The last id that stays of the tokens of one order, where `at` is the weight above all of them.
template <class Tokens>
QUIRE_DEVICE int32_t LastOfOrder(SampleShared& shared, const Tokens& tokens, const Measure& measure,
                                 uint32_t order, Crossing at) {
  CutTarget target;
  target.by_mass = measure.by_mass;
  target.weight = at.target;
  uint32_t prefix = 0;
  for (int digit = 0; digit < kIdDigits; ++digit) {
    const int shift = 8 * (kIdDigits - 1 - digit);
    ClearBins(shared, kDigitBins);
    tokens.Each(shared, [&](int id, float value) {
      const auto number = static_cast<uint32_t>(id);
      if (measure.OrderOf(value) != order || !HasPrefix(number, shift, prefix)) return;
      AddToBin(shared, DigitOf(number, shift), measure.WeightOf(value));
    });
    at = FindCrossing<kDigitBins>(shared, target, false, at.above);
    prefix = prefix << 8 | static_cast<uint32_t>(at.bin);
  }
  return static_cast<int32_t>(prefix);
}

QUIRE_DEVICE Threshold Cut(SampleShared& shared, const RowOfLogits& row, const InPlay& in_play,
                           const Measure& measure, CutTarget target) {
  target.by_mass = measure.by_mass;
  ClearBins(shared, kSampleBins);
  in_play.Each(row, [&](int, float value) {
    AddToBin(shared, measure.BinOf(value), measure.WeightOf(value));
  });
  Crossing at = FindCrossing<kSampleBins>(shared, target, true, 0);
  if (at.all != 0) return Threshold{};
  const int bin = at.bin;
  target.weight = at.target;
  List(shared, row, in_play, [&](int, float value) { return measure.BinOf(value) == bin; });
  const BinTokens tokens{row, in_play, measure, bin};
  uint32_t order = 0;
  for (int digit = 0; digit < kOrderDigits; ++digit) {
    const int shift = 8 * (kOrderDigits - 1 - digit);
    ClearBins(shared, kDigitBins);
    tokens.Each(shared, [&](int, float value) {
      const uint32_t own = measure.OrderOf(value);
      if (!HasPrefix(own, shift, order)) return;
      AddToBin(shared, 255 - DigitOf(own, shift), measure.WeightOf(value));
    });
    at = FindCrossing<kDigitBins>(shared, target, false, at.above);
    order = order << 8 | static_cast<uint32_t>(255 - at.bin);
  }
  return Threshold{order, LastOfOrder(shared, tokens, measure, order, at)};
}

}  // namespace quire::kernels::cuda
