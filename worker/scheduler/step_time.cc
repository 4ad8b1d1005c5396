#include "worker/scheduler/step_time.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"

namespace quire {
namespace {

// Before anything is known: slow enough for a large model on few cores.
constexpr double kUnknownMicrosPerToken = 20'000;
constexpr double kContextUnit = 1024;   // brings the terms to similar sizes
constexpr double kNewShare = 1.0 / 16;  // of a further step in its bucket's mean
// A step that took much longer than its bucket's mean was disturbed: it counts as this many times
// the mean, so that one hiccup changes little and a lasting change is still followed.
constexpr double kOutlierFactor = 3;
constexpr int64_t kSettled = 4;  // steps in a bucket before outliers are detected
// One more step of a bucket with many hardly changes its mean: not every step is worth a fit.
constexpr int64_t kMany = 64;
constexpr int64_t kFitEvery = 8;

size_t LogBucket(int64_t count, size_t buckets) {
  QUIRE_CHECK(count >= 0);
  return std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(count))), buckets - 1);
}

// Solves the symmetric positive system over the terms in `subset` by elimination.
template <size_t N>
std::array<double, N> SolveSubset(std::array<std::array<double, N>, N> a, std::array<double, N> b,
                                  unsigned subset) {
  std::array<double, N> x{};
  const auto in = [subset](size_t i) { return (subset >> i & 1u) != 0; };
  for (size_t i = 0; i < N; ++i) {
    if (!in(i)) continue;
    for (size_t j = i + 1; j < N; ++j) {
      if (!in(j)) continue;
      const double factor = a[j][i] / a[i][i];
      for (size_t k = i; k < N; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  for (size_t i = N; i-- > 0;) {
    if (!in(i)) continue;
    double sum = b[i];
    for (size_t k = i + 1; k < N; ++k) {
      if (in(k)) sum -= a[i][k] * x[k];
    }
    x[i] = sum / a[i][i];
  }
  return x;
}

}  // namespace

double StepTimes::Predict(const StepWork& work) const {
  return fixed_us + row_us * static_cast<double>(work.decode_rows) +
         token_us * static_cast<double>(work.prefill_tokens) +
         context_us * static_cast<double>(work.context);
}

int64_t StepTimes::PrefillWithin(double micros, int64_t first) const {
  QUIRE_CHECK(first >= 0);
  if (micros <= 0) return 0;
  // n tokens from `first` on take n·token + (n·first + n(n + 1)/2)·context: solved for n.
  const double linear = token_us + context_us * (static_cast<double>(first) + 0.5);
  const double square = context_us / 2;
  double tokens = static_cast<double>(longest_prefill);
  if (linear > 0) tokens = std::min(tokens, micros / linear);
  if (square > 0) {
    const double root = std::sqrt(linear * linear + 4 * square * micros);
    tokens = std::min(tokens, 2 * micros / (linear + root));  // the stable form of the root
  }
  if (tokens >= static_cast<double>(longest_prefill)) return longest_prefill;
  return static_cast<int64_t>(tokens);
}

StepTimeModel::StepTimeModel() {
  times_.token_us = kUnknownMicrosPerToken;
  times_.row_us = kUnknownMicrosPerToken;
}

void StepTimeModel::Observe(const StepWork& work, int64_t elapsed_us) {
  QUIRE_CHECK(elapsed_us >= 0);
  QUIRE_CHECK(work.decode_rows + work.prefill_tokens > 0);
  const bool longer = work.prefill_tokens > longest_seen_;
  longest_seen_ = std::max(longest_seen_, work.prefill_tokens);
  const size_t index = LogBucket(work.prefill_tokens, kPrefillBuckets) * kRowBuckets +
                       LogBucket(work.decode_rows, kRowBuckets);
  Bucket& bucket = buckets_[index];
  if (bucket.seen == 0) used_[used_count_++] = static_cast<uint16_t>(index);
  ++bucket.seen;
  double micros = std::max(1.0, static_cast<double>(elapsed_us));
  if (bucket.seen > kSettled) micros = std::min(micros, kOutlierFactor * bucket.micros);
  const double share = std::max(kNewShare, 1.0 / static_cast<double>(bucket.seen));
  const Terms terms = {1.0, static_cast<double>(work.decode_rows),
                       static_cast<double>(work.prefill_tokens),
                       static_cast<double>(work.context) / kContextUnit};
  for (size_t i = 0; i < kTerms; ++i) bucket.work[i] += share * (terms[i] - bucket.work[i]);
  bucket.micros += share * (micros - bucket.micros);
  if (longer || bucket.seen <= kMany || bucket.seen % kFitEvery == 0) Fit();
}

// Non-negative least squares by trying every set of terms: with four there are fifteen. A small
// ridge decides what the measurements leave open; it is larger on the fixed part, because a step's
// time that is wrongly counted as fixed would make long chunks look free.
void StepTimeModel::Fit() {
  std::array<Terms, kTerms> a{};
  Terms b{};
  for (size_t used = 0; used < used_count_; ++used) {
    const Bucket& bucket = buckets_[used_[used]];
    const double weight = 1 / (bucket.micros * bucket.micros);
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j < kTerms; ++j) a[i][j] += weight * bucket.work[i] * bucket.work[j];
      b[i] += weight * bucket.work[i] * bucket.micros;
    }
  }
  for (size_t i = 0; i < kTerms; ++i) a[i][i] = a[i][i] * (i == 0 ? 1.001 : 1.000001) + 1e-18;
  Terms best{};
  double best_gain = -1;
  for (unsigned subset = 1; subset < 1u << kTerms; ++subset) {
    const Terms x = SolveSubset(a, b, subset);
    double gain = 0;
    bool valid = true;
    for (size_t i = 0; i < kTerms; ++i) {
      valid = valid && x[i] >= 0 && std::isfinite(x[i]);
      gain += b[i] * x[i];
    }
    if (!valid || gain <= best_gain) continue;
    best = x;
    best_gain = gain;
  }
  QUIRE_CHECK(best_gain >= 0);
  times_.fixed_us = best[0];
  times_.row_us = best[1];
  times_.token_us = best[2];
  times_.context_us = best[3] / kContextUnit;
  // Also not longer than the whole range of the last bucket: the mean represents all of it.
  times_.longest_prefill = std::max<int64_t>(1, longest_seen_) * kMaxPrefillGrowth;
}

}  // namespace quire
