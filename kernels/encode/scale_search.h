// The search for the scale, and the minimum, under which a group's codes lose least.
//
// Pure. Each trial scale gives codes; weighted least squares over those codes give the scale (and
// minimum) that fits them best; the trial with the least error wins. The method: ggml's k-quants.
#pragma once

#include <cstdint>
#include <span>

namespace quire::kernels::encode {

inline constexpr float kLeastScale = 1e-30f;  // a group below it everywhere is zero

// To the nearest integer, ties to even; |value| < 2^22.
inline int Nearest(float value) {
  constexpr float kShift = 12'582'912.0f;  // 1.5 · 2^23: one is the last place of what is near it
  return static_cast<int>((value + kShift) - kShift);
}

// x ≈ scale · code with codes −half … half − 1; the scale is below zero where that fits the largest
// value better, unless it must be positive. Zero where all of x is.
enum class Sign : uint8_t { kAny, kPositive };
float BestScale(std::span<const float> x, int half, Sign sign = Sign::kAny);

// x ≈ scale · code − minimum with codes 0 … most and minimum ≥ 0.
struct Range {
  float scale = 0.0f;
  float minimum = 0.0f;
};
Range BestRange(std::span<const float> x, int most);

}  // namespace quire::kernels::encode
