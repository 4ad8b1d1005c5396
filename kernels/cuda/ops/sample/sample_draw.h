// The draw of a token: the cuts of its row, and the best score among the remaining tokens.
#pragma once

#include "kernels/cuda/ops/sample/sample_cut.h"

namespace quire::kernels::cuda {

QUIRE_DEVICE uint64_t KeyOfScore(double score) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, score + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}

// A thread's best score so far. With u a token's random number and `missing` the upper 24 bits of
// 1 − u, its noise is at most −ln(missing / 2^24): where e^distance · 2^24 · e^−best is below
// `missing`, the token is out of reach. The factor leaves room for rounding.
struct BestScore {
  bool some = false;
  double score = 0.0;
  uint32_t token = 0xffffffffu;
  float scale = 0.0f;

  QUIRE_DEVICE void Consider(const sampling::NoisePosition& at, int32_t id, float distance) {
    if (some && OutOfReach(at, id, distance)) return;
    const uint32_t own_token = static_cast<uint32_t>(id);
    const double own = static_cast<double>(distance) + sampling::Gumbel(at, own_token);
    if (some && !(own > score || (own == score && own_token < token))) return;
    some = true;
    score = own;
    token = own_token;
    const float rounded = static_cast<float>(own);
    const float e = rounded >= 0.0f ? sampling::ExpOfNegative(-rounded)
                                    : 1.0f / sampling::ExpOfNegative(rounded);
    scale = 16777216.0f * 1.0001f * e;
  }

  QUIRE_DEVICE bool OutOfReach(const sampling::NoisePosition& at, int32_t id,
                               float distance) const {
    if (static_cast<double>(distance) + sampling::kLargestGumbel < score) return true;
    const uint32_t high = static_cast<uint32_t>(at.output_index >> 32);
    const sampling::PhiloxBlock counter{{static_cast<uint32_t>(id),
                                         static_cast<uint32_t>(at.output_index), at.choice,
                                         static_cast<uint32_t>(at.purpose) ^ (high << 8)}};
    const sampling::PhiloxBlock random = sampling::Philox(counter, static_cast<uint32_t>(at.seed),
                                                          static_cast<uint32_t>(at.seed >> 32));
    const float missing = static_cast<float>(static_cast<int>(~random.word[0] >> 8));
    return sampling::ExpOfNegative(distance) * scale < missing;
  }
};

// The best of the tokens in play, by the key of its score. `peak` is the place of one whose
// distance is 0, with which every thread begins; −1: none is known.
QUIRE_DEVICE KeyedId DrawOne(SampleShared& shared, const RowOfLogits& row, const InPlay& in_play,
                             int peak) {
  const DeviceSampleRow& how = shared.row;
  const sampling::NoisePosition at{how.seed, how.output_index, how.choice,
                                   sampling::Purpose::kSample};
  BestScore best;
  if (peak >= 0 && in_play.Has(peak, 0.0f)) best.Consider(at, row.TokenAt(peak), 0.0f);
  in_play.Each(row, [&](int id, float distance) {
    if (id != peak) best.Consider(at, row.TokenAt(id), distance);
  });
  KeyedId own;
  if (best.some) own.Take(KeyOfScore(best.score), best.token);
  return BlockBest(shared, own);
}

// Masses of the tokens in play: their sum, and that of their distances by weight.
struct MassAndMean {
  uint64_t mass = 0;
  uint64_t weighted = 0;

  QUIRE_DEVICE float Mean() const {
    return -static_cast<float>(static_cast<double>(weighted) / static_cast<double>(mass));
  }
};

QUIRE_DEVICE MassAndMean Weigh(SampleShared& shared, const RowOfLogits& row,
                               const InPlay& in_play) {
  MassAndMean sum;
  in_play.Each(row, [&](int, float distance) {
    const float weight = sampling::ExpOfNegative(distance);
    sum.mass += sampling::Mass(weight);
    sum.weighted += sampling::Mass(-distance * weight);
  });
  sum.mass = BlockSum(shared, sum.mass);
  sum.weighted = BlockSum(shared, sum.weighted);
  return sum;
}

// A row's cuts, in their order.
enum class CutKind : int { kTopK, kTopP, kTypical };

QUIRE_DEVICE Measure MeasureOf(CutKind kind, float mean) {
  Measure measure;
  measure.by_mass = kind != CutKind::kTopK;
  measure.typical = kind == CutKind::kTypical;
  if (measure.typical) measure.origin = mean;
  return measure;
}

QUIRE_DEVICE CutTarget TargetOf(CutKind kind, const DeviceSampleRow& how) {
  CutTarget target;
  target.by_mass = kind != CutKind::kTopK;
  target.known = kind == CutKind::kTopK;
  if (target.known) target.weight = static_cast<uint64_t>(how.top_k);
  target.share = kind == CutKind::kTypical ? how.typical_p : how.top_p;
  return target;
}

QUIRE_DEVICE InPlay AllInPlay(const DeviceSampleRow& how, float peak) {
  InPlay in_play;
  in_play.peak = peak;
  in_play.temperature = how.temperature;
  in_play.min_p = how.min_p;
  return in_play;
}

// Takes the tokens after the end of a cut out of play.
QUIRE_DEVICE void Narrow(InPlay& in_play, CutKind kind, const Threshold& end, float mean) {
  if (kind != CutKind::kTypical) {
    in_play.nearest = end;
    return;
  }
  in_play.typical = end;
  in_play.mean = mean;
  in_play.cut_to_typical = true;
}

QUIRE_DEVICE KeyedId Draw(SampleShared& shared, const RowOfLogits& row, InPlay in_play, int peak) {
  const DeviceSampleRow& how = shared.row;
  const auto cut = [&](CutKind kind, float mean) {
    const Threshold end = Cut(shared, row, in_play, MeasureOf(kind, mean), TargetOf(kind, how));
    Narrow(in_play, kind, end, mean);
  };
  if (how.top_k > 0) cut(CutKind::kTopK, 0.0f);
  if (how.top_p < 1.0f) cut(CutKind::kTopP, 0.0f);
  if (how.typical_p < 1.0f) cut(CutKind::kTypical, Weigh(shared, row, in_play).Mean());
  return DrawOne(shared, row, in_play, peak);
}

}  // namespace quire::kernels::cuda
