#include "kernels/encode/scale_search.h"

#include <algorithm>
#include <cmath>

namespace quire::kernels::encode {
namespace {

constexpr int kTrials = 10;         // to either side of the scale that the largest value gives
constexpr float kTrialStep = 0.1f;  // of a code, at the largest value
constexpr int kMaxGroup = 64;       // values that share a scale and a minimum

// A trial of BestRange: the weighted sums that least squares need.
struct Sums {
  float l = 0.0f, ll = 0.0f, xl = 0.0f;
};

struct Weighed {
  std::span<const float> x;
  float weights[kMaxGroup];
  float sum_w = 0.0f, sum_x = 0.0f;
};

// A value weighs more the larger it is, and the group's size sets the floor.
Weighed Weigh(std::span<const float> x) {
  Weighed group{.x = x, .weights = {}};
  float squares = 0.0f;
  for (const float value : x) squares += value * value;
  const float usual = std::sqrt(squares / static_cast<float>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    group.weights[i] = usual + std::abs(x[i]);
    group.sum_w += group.weights[i];
    group.sum_x += group.weights[i] * x[i];
  }
  return group;
}

Sums SumCodes(const Weighed& group, float low, float inverse, int most) {
  Sums sums;
  for (size_t i = 0; i < group.x.size(); ++i) {
    const auto code =
        static_cast<float>(std::clamp(Nearest(inverse * (group.x[i] - low)), 0, most));
    const float w = group.weights[i];
    sums.l += w * code;
    sums.ll += w * code * code;
    sums.xl += w * code * group.x[i];
  }
  return sums;
}

// The scale and minimum that fit the codes of a trial best; a minimum below zero becomes zero.
Range Fit(const Weighed& group, const Sums& sums) {
  const float determinant = group.sum_w * sums.ll - sums.l * sums.l;
  if (determinant <= 0.0f) return {};
  Range range = {(group.sum_w * sums.xl - group.sum_x * sums.l) / determinant,
                 (sums.l * sums.xl - sums.ll * group.sum_x) / determinant};
  if (range.minimum < 0.0f) range = {sums.xl / sums.ll, 0.0f};
  return range;
}

float ErrorOf(const Weighed& group, const Range& range, int most) {
  const float inverse = 1.0f / range.scale;
  float error = 0.0f;
  for (size_t i = 0; i < group.x.size(); ++i) {
    const int code = std::clamp(Nearest(inverse * (group.x[i] + range.minimum)), 0, most);
    const float miss = range.scale * static_cast<float>(code) - range.minimum - group.x[i];
    error += group.weights[i] * miss * miss;
  }
  return error;
}

}  // namespace

float BestScale(std::span<const float> x, int half, Sign sign) {
  float largest = 0.0f;
  for (const float value : x) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  if (std::abs(largest) < kLeastScale) return 0.0f;
  // The largest value gets the code −half, which has no partner of the other sign; under a positive
  // scale the border between the last code of each side.
  const bool any = sign == Sign::kAny;
  const float code_of_largest = static_cast<float>(half) - (any ? 0.0f : 0.5f);
  const float unit = any ? -1.0f / largest : 1.0f / std::abs(largest);
  float best = 0.0f;
  float scale = 0.0f;
  for (int trial = -kTrials; trial <= kTrials; ++trial) {
    const float inverse = unit * (code_of_largest + kTrialStep * static_cast<float>(trial));
    float sum_xl = 0.0f, sum_ll = 0.0f;
    for (const float value : x) {
      const auto code = static_cast<float>(std::clamp(Nearest(inverse * value), -half, half - 1));
      const float w = value * value;
      sum_xl += w * value * code;
      sum_ll += w * code * code;
    }
    // What least squares leave of the error is Σ w x² − sum_xl² / sum_ll.
    if (sum_ll > 0.0f && sum_xl * sum_xl > best * sum_ll) {
      best = sum_xl * sum_xl / sum_ll;
      scale = sum_xl / sum_ll;
    }
  }
  return scale;
}

Range BestRange(std::span<const float> x, int most) {
  const auto [least, largest] = std::ranges::minmax(x);
  const float low = std::min(least, 0.0f);
  const float width = largest - low;
  if (width < kLeastScale) return {0.0f, -low};
  const Weighed group = Weigh(x);
  Range best = {width / static_cast<float>(most), -low};
  float error = ErrorOf(group, best, most);
  for (int trial = -kTrials; trial <= kTrials; ++trial) {
    const float inverse =
        (static_cast<float>(most) + kTrialStep * static_cast<float>(trial)) / width;
    const Range range = Fit(group, SumCodes(group, low, inverse, most));
    if (range.scale <= 0.0f) continue;
    if (const float now = ErrorOf(group, range, most); now < error) {
      error = now;
      best = range;
    }
  }
  return best;
}

}  // namespace quire::kernels::encode
