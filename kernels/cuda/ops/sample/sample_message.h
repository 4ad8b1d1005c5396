// The work of the launches of sample_slice in a round, and the ranks' messages about a row in it.
#pragma once

#include "kernels/cuda/ops/sample/sample_draw.h"
#include "kernels/cuda/ops/sample/sample_slice.h"

namespace quire::kernels::cuda {

// Digits are kDigits + 4 · cut + digit.
enum SliceStage : int { kNothing, kPeaks, kRaw, kMean, kTokens, kBest, kDigits = 16 };

template <class Row>
QUIRE_BOTH bool IsGreedy(const Row& row) {
  return row.temperature < kLeastTemperature;
}

// The beginning of a row's message; the round determines which fields count.
struct alignas(16) SliceHead {
  struct Peak {
    uint32_t key = 0;  // OrderedKey of the value; 0: the slice is empty
    int32_t id = -1;
    float value = 0.0f;
    float raw = 0.0f;
  };
  Peak raw;
  Peak changed;  // by the row's lists
  uint64_t raw_mass = 0;
  uint64_t mass = 0;  // of what is in play
  uint64_t weighted = 0;
  uint64_t best_key = 0;  // of the best score
  int32_t best_id = -1;
  float best_raw = 0.0f;
  float scored = 0.0f;  // the scored token's logit; −∞ where it is not in the slice
  int32_t before = 0;   // tokens that come before the scored one
  int32_t top = 0;      // tokens in the message
  int32_t tokens = 0;
};
static_assert(sizeof(SliceHead) == 96);

struct SliceToken {
  float value;
  float raw;
  int32_t id;
};
struct SliceTop {
  float value;
  int32_t id;
};

constexpr int kHistogramBytes = kDigitBins * sizeof(uint64_t);
static_assert(kMostSliceTokens * sizeof(SliceToken) <= kHistogramBytes);
static_assert(sizeof(SliceHead) + kMaxTopLogprobs * sizeof(SliceTop) + kHistogramBytes ==
              kMostSliceMessage);

}  // namespace quire::kernels::cuda
