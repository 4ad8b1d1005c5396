// Keys and values of eight bits: e4m3 (sign, four bits of exponent, three of mantissa; largest 448,
// no infinities) with one float32 scale per token and head, separate for K and V. The same on host
// and device.
//
// Pure functions. 1. A stored element is code · scale; code is x · inverse, to the nearest, ties to
// the even. 2. The code 0x7f (NaN) is never written: a head with a NaN or an infinity has the scale
// NaN, so that all of it reads as NaN. 3. A head below kFp8Least everywhere is zero.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define QUIRE_KV_FUNCTION __host__ __device__ __forceinline__
#else
#define QUIRE_KV_FUNCTION [[gnu::always_inline]] inline
#endif

namespace quire::kernels {

inline constexpr float kFp8Max = 448.0f;
inline constexpr float kFp8Least = 1e-30f;  // of the largest magnitude of a head

struct Fp8Scale {
  float scale = 0.0f;
  float inverse = 0.0f;
};

// `largest`: the largest magnitude of a head; `finite`: whether all of it is.
QUIRE_KV_FUNCTION Fp8Scale Fp8ScaleOf(float largest, bool finite) {
  if (!finite) return {__builtin_nanf(""), 0.0f};
  if (largest < kFp8Least) return {0.0f, 0.0f};
  return {largest / kFp8Max, kFp8Max / largest};
}

QUIRE_KV_FUNCTION uint8_t ToFp8(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and above, NaN
  if (magnitude < 0x3c800000u) {  // below 2^−6: steps of 2^−9, which is the last place of 2^14
    float shifted;
    memcpy(&shifted, &magnitude, 4);
    shifted += 16384.0f;
    uint32_t steps;
    memcpy(&steps, &shifted, 4);
    return static_cast<uint8_t>(sign | (steps - 0x46800000u));
  }
  const uint32_t rounded = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - (120u << 3)));
}

QUIRE_KV_FUNCTION float FromFp8(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  float value;
  if (magnitude < 8) {
    value = static_cast<float>(magnitude) * 0.001953125f;  // 2^−9
  } else {
    const uint32_t bits = (magnitude << 20) + (120u << 23);
    memcpy(&value, &bits, 4);
  }
  return (code & 0x80u) != 0 ? -value : value;
}

}  // namespace quire::kernels
