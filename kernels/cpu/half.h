// Sixteen-bit floats in plain C++: exact widening, and rounding to the nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace quire::kernels::cpu {

// IEEE binary16 to binary32, exact. Branch-free except for subnormals, which are scaled by 2^−24.
[[gnu::always_inline]] inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  uint32_t wide;
  if (magnitude >= 0x7c00u) {
    wide = 0x7f800000u | ((magnitude & 0x3ffu) << 13);   // infinity, NaN
    if ((magnitude & 0x3ffu) != 0) wide |= 0x00400000u;  // quiet, as the processor widens
  } else if (magnitude >= 0x0400u) {
    wide = (magnitude << 13) + 0x38000000u;
  } else {
    wide = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 5.9604644775390625e-8f);
  }
  return std::bit_cast<float>(sign | wide);
}

// To the nearest even; values beyond 65504 become infinite, NaN stays NaN, as the processor
// narrows.
[[gnu::always_inline]] inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t narrow;
  if (magnitude > 0x7f800000u) {
    narrow = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {
    narrow = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {
    narrow = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // steps of 2^−24: the last place of a half
    narrow = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<uint16_t>(sign | narrow);
}

[[gnu::always_inline]] inline float BFloatToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline uint16_t FloatToBFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace quire::kernels::cpu
