// How long a step will take, from its contents: prefill chunks are cut by it.
//
// Owner: Engine fits it (StepTimeModel), the scheduler gets the result (StepTimes) as plain data.
// Pure and deterministic: durations come in as data. It aims at the mean; whether a step is stuck
// is decided by the higher estimate of StepCost.
//
// Invariants:
// 1. No coefficient is negative: more work never costs less.
// 2. Extrapolation is limited: a chunk is at most kMaxPrefillGrowth times as long as the longest
//    prefill that was measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace quire {

inline constexpr int64_t kMaxPrefillGrowth = 4;

// The contents of a step.
struct StepWork {
  int64_t decode_rows = 0;
  int64_t prefill_tokens = 0;
  int64_t context = 0;  // keys that are read: the sum of position + 1 over all computed tokens

  void AddDecode(int64_t position) {
    ++decode_rows;
    context += position + 1;
  }
  void AddPrefill(int64_t first, int64_t count) {
    prefill_tokens += count;
    context += count * first + count * (count + 1) / 2;
  }
};

// Microseconds of a step as a sum over its work.
struct StepTimes {
  double fixed_us = 0;
  double row_us = 0;
  double token_us = 0;                                            // of prefill
  double context_us = 0;                                          // per key read
  int64_t longest_prefill = std::numeric_limits<int64_t>::max();  // the limit of a chunk's length

  double Predict(const StepWork& work) const;
  // The most tokens from position `first` on that add at most `micros`; 0 when none do.
  int64_t PrefillWithin(double micros, int64_t first) const;
};

// Fits StepTimes: steps fall into buckets by the binary logarithms of their prefill tokens and
// decode rows, each bucket keeps the running mean of its work and time, and the coefficients are
// the non-negative least squares (of relative errors) over the buckets. A bucket without new steps
// keeps its means, so that hours of decoding do not erase what is known of prefill.
class StepTimeModel {
 public:
  StepTimeModel();

  const StepTimes& times() const { return times_; }
  void Observe(const StepWork& work, int64_t elapsed_us);

 private:
  static constexpr size_t kTerms = 4;
  static constexpr size_t kPrefillBuckets = 18;
  static constexpr size_t kRowBuckets = 14;
  using Terms = std::array<double, kTerms>;
  struct Bucket {
    int64_t seen = 0;
    Terms work{};
    double micros = 0;
  };

  void Fit();

  std::array<Bucket, kPrefillBuckets * kRowBuckets> buckets_{};
  std::array<uint16_t, kPrefillBuckets * kRowBuckets> used_{};  // indices of buckets_, by first use
  size_t used_count_ = 0;
  int64_t longest_seen_ = 0;
  StepTimes times_;
};

}  // namespace quire
