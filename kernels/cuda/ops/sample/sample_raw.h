// Reads a row as it is: its peak, the best logits, the mass that logprobs need.
#pragma once

#include "kernels/cuda/ops/sample/sample_cut.h"

namespace quire::kernels::cuda {

inline constexpr uint32_t kInfinityKey = 0xff800000u;       // OrderedKey of +∞
inline constexpr uint32_t kMinusInfinityKey = 0x007fffffu;  // of −∞
inline constexpr uint32_t kNoNumberKey = 0xffffffffu;       // above all: the maximum passes it on

QUIRE_DEVICE void TakeLogit(float z, int id, KeyedId& best) {
  if (z != z) {
    best.Take(kNoNumberKey, 0);
  } else {
    best.Take(sampling::OrderedKey(z), static_cast<uint32_t>(id));
  }
}

// As sampling::Peak.
struct DevicePeak {
  bool usable;
  float value;
  int32_t id;  // −1: all are −∞
};

QUIRE_DEVICE DevicePeak PeakOf(const RowOfLogits& row, KeyedId best) {
  DevicePeak peak{best.key < kInfinityKey, FloatOfBits(kMinusInfinityBits), -1};
  if (!peak.usable || best.key <= kMinusInfinityKey) return peak;
  peak.id = static_cast<int32_t>(best.id);
  peak.value = row.Get(peak.id);
  return peak;
}

// The one pass over global memory: keeps what fits in shared memory, finds the peak.
QUIRE_DEVICE KeyedId ReadRow(SampleShared& shared, const RowOfLogits& row) {
  KeyedId best;
  const int vectors = row.count / 4;
  for (int v = ThreadIndex(); v < vectors; v += kSampleThreads) {
    const Vector16 four = Load16(row.global + 4 * v);
    if (4 * v < row.cached) Store16(row.cache + 4 * v, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) TakeLogit(FloatOfBits(four.word[i]), 4 * v + i, best);
  }
  const int id = 4 * vectors + ThreadIndex();
  if (id < row.count) {
    const float z = row.global[id];
    if (id < row.cached) row.cache[id] = z;  // NOLINT: null where nothing is cached
    TakeLogit(z, id, best);
  }
  BlockBarrier();
  return BlockBest(shared, best);
}

QUIRE_DEVICE KeyedId FindPeak(SampleShared& shared, const RowOfLogits& row) {
  KeyedId best;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    TakeLogit(row.Get(id), id, best);
  }
  return BlockBest(shared, best);
}

// Converts a raw logit into a logprob.
struct Logprobs {
  double peak;
  double log_sum;

  QUIRE_DEVICE float Of(float z) const {
    return static_cast<float>((static_cast<double>(z) - peak) - log_sum);
  }
};

QUIRE_DEVICE uint64_t RawMass(SampleShared& shared, const RowOfLogits& row, float peak) {
  uint64_t mass = 0;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    mass += sampling::Mass(sampling::ExpOfNegative(row.Get(id) - peak));
  }
  return BlockSum(shared, mass);
}

QUIRE_DEVICE double LogOfMass(uint64_t mass) {
  return sampling::Log(static_cast<double>(mass) / sampling::kMassUnit);
}

QUIRE_DEVICE int TopWanted(const DeviceSampleRow& how) {
  const int wanted = how.logprobs - 1;
  return wanted < 0 ? 0 : wanted < kMaxTopLogprobs ? wanted : kMaxTopLogprobs;
}

// Lists the best `wanted` raw logits, in no order.
QUIRE_DEVICE void ListTop(SampleShared& shared, const RowOfLogits& row, int wanted, float peak) {
  InPlay possible;
  Measure measure;
  measure.origin = peak;
  CutTarget target;
  target.known = true;
  target.weight = static_cast<uint64_t>(wanted);
  possible.nearest = Cut(shared, row, possible, measure, target);
  List(shared, row, possible, [](int, float) { return true; });
}

// The best `wanted` of the `count` tokens that are listed, in order, to the output.
QUIRE_DEVICE void TellTop(const SampleShared& shared, int count, int wanted,
                          const Logprobs& logprobs, SampleOutput& output) {
  for (int own = ThreadIndex(); own < count; own += kSampleThreads) {
    const uint32_t order = sampling::OrderedKey(shared.list_values[own]);
    const int32_t id = shared.list_ids[own];
    // The place of each is the number of those that come before it.
    int place = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t other = sampling::OrderedKey(shared.list_values[i]);
      const int32_t other_id = shared.list_ids[i];
      const bool first = other_id < id || (other_id == id && i < own);
      place += other > order || (other == order && first) ? 1 : 0;
    }
    if (place >= wanted) continue;
    output.top_ids[place] = id;
    output.top_logprobs[place] = logprobs.Of(shared.list_values[own]);
  }
  if (ThreadIndex() == 0) output.top_count = count < wanted ? count : wanted;
}

// How many tokens come before one of logit `own` at place `place`, in the row or outside it.
QUIRE_DEVICE uint64_t CountBefore(SampleShared& shared, const RowOfLogits& row, float own,
                                  int place) {
  uint64_t before = 0;
  for (int id = ThreadIndex(); id < row.count; id += kSampleThreads) {
    const float z = row.Get(id);
    before += z > own || (z == own && id < place) ? 1 : 0;
  }
  return BlockSum(shared, before);
}

QUIRE_DEVICE void ClearOutput(SampleOutput& output) {
  if (ThreadIndex() < kMaxTopLogprobs) {
    output.top_ids[ThreadIndex()] = 0;
    output.top_logprobs[ThreadIndex()] = 0.0f;
  }
  if (ThreadIndex() == 0) {
    output.token = -1;
    output.not_a_number = false;
    output.logprob = 0.0f;
    output.rank = 0;
    output.top_count = 0;
  }
  BlockBarrier();
}

// A small struct to the block's shared memory; it may be read after a barrier.
template <class T>
QUIRE_DEVICE void LoadWords(T& shared, const T& global) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) / 4 <= kSampleThreads);
  constexpr int kWords = sizeof(T) / 4;
  if (ThreadIndex() < kWords) {
    reinterpret_cast<uint32_t*>(&shared)[ThreadIndex()] =
        reinterpret_cast<const uint32_t*>(&global)[ThreadIndex()];
  }
}

}  // namespace quire::kernels::cuda
