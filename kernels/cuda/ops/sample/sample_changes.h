// How a row's lists change its logits: masks, bans, biases and penalties. Lists name tokens; those
// that are not in the row are ignored.
#pragma once

#include "kernels/cuda/ops/sample/sample_cut.h"

namespace quire::kernels::cuda {

// f(place of the id, first entry of it, end of its entries) for this thread's entries of a list
// sorted by id: equal ids are one thread's work.
template <class Entry, class F>
QUIRE_DEVICE void EachId(const RowOfLogits& row, const Entry* list, int count, const F& f) {
  for (int first = ThreadIndex(); first < count; first += kSampleThreads) {
    const int32_t id = list[first].id;
    const int64_t place = int64_t{id} - row.first_id;
    if (place < 0 || place >= row.count || (first > 0 && list[first - 1].id == id)) continue;
    int end = first + 1;
    while (end < count && list[end].id == id) ++end;
    f(static_cast<int>(place), first, end);
  }
}

QUIRE_DEVICE void KeepRaw(const RowOfLogits& row, const DeviceSampleRow& how) {
  EachId(row, how.logit_bias, how.bias_count,
         [&](int place, int first, int) { how.raw_biased[first] = row.Get(place); });
  EachId(row, how.token_counts, how.token_count,
         [&](int place, int first, int) { how.raw_counted[first] = row.Get(place); });
  BlockBarrier();
}

QUIRE_DEVICE void ChangeLogits(const RowOfLogits& row, const DeviceSampleRow& how) {
  if (how.mask_words > 0) {
    for (int place = ThreadIndex(); place < row.count; place += kSampleThreads) {
      const int id = row.first_id + place;
      const uint32_t word = id / 32 < how.mask_words ? how.allowed_mask[id / 32] : 0u;
      if ((word >> (id % 32) & 1u) == 0) *row.At(place) = FloatOfBits(kMinusInfinityBits);
    }
    BlockBarrier();
  }
  // An id may be banned twice: atomics, which may meet.
  for (int i = ThreadIndex(); i < how.banned_count; i += kSampleThreads) {
    const int64_t place = int64_t{how.banned_ids[i]} - row.first_id;
    if (place < 0 || place >= row.count) continue;
    float* at = row.At(static_cast<int>(place));
    AtomicExchange(reinterpret_cast<uint32_t*>(at), kMinusInfinityBits);
  }
  BlockBarrier();
  EachId(row, how.logit_bias, how.bias_count, [&](int place, int first, int end) {
    float z = row.Get(place);
    for (int i = first; i < end; ++i) z = z + how.logit_bias[i].bias;
    *row.At(place) = z;
  });
  BlockBarrier();
  EachId(row, how.token_counts, how.token_count, [&](int place, int first, int end) {
    float z = row.Get(place);
    for (int i = first; i < end; ++i) {
      z = sampling::Penalise(z, how.token_counts[i].output_count, how.repetition_penalty,
                             how.frequency_penalty, how.presence_penalty);
    }
    *row.At(place) = z;
  });
  BlockBarrier();
}

// The first entry of an id in a list sorted by id; −1: none.
template <class Entry>
QUIRE_DEVICE int FirstOfId(const Entry* list, int count, int32_t id) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle].id < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && list[low].id == id ? low : -1;
}

// The raw logit of the chosen token. A token that is masked or banned is never chosen.
QUIRE_DEVICE float RawOf(const RowOfLogits& row, const DeviceSampleRow& how, int place) {
  const int32_t id = row.first_id + place;
  const int biased = FirstOfId(how.logit_bias, how.bias_count, id);
  if (biased >= 0) return how.raw_biased[biased];
  const int counted = FirstOfId(how.token_counts, how.token_count, id);
  return counted >= 0 ? how.raw_counted[counted] : row.Get(place);
}

}  // namespace quire::kernels::cuda
