// float16 as float32, exactly, and back; two products of bfloat16 at once.
#pragma once

#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda::device {

#ifdef __CUDACC__
// Two floats rounded to float16, a in the low half: one instruction. Beyond 65,504 an infinity.
QUIRE_DEVICE uint32_t PackF16(float a, float b) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(out) : "f"(b), "f"(a));
  return out;
}
// The same, but values beyond ±65,504 become that: also one instruction. A NaN stays one.
QUIRE_DEVICE uint32_t PackFiniteF16(float a, float b) {
  uint32_t out;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(out) : "f"(b), "f"(a));
  return out;
}
// The products of the halves of two words, each rounded to bfloat16; subnormal numbers are numbers.
QUIRE_DEVICE uint32_t ProductBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
  return out;
}
QUIRE_DEVICE float ToFloat(F16 x) { return __half2float(__ushort_as_half(x.bits)); }
#else
QUIRE_DEVICE uint16_t F16Bits(float x) {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^−14: steps of 2^−24, which is the last place of 1/2
    return static_cast<uint16_t>(sign |
                                 (BitsOfFloat(FloatOfBits(magnitude) + 0.5f) - BitsOfFloat(0.5f)));
  }
  const uint32_t rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  return static_cast<uint16_t>(sign | (rounded - (112u << 10)));
}
QUIRE_DEVICE uint32_t PackF16(float a, float b) {
  return F16Bits(a) | static_cast<uint32_t>(F16Bits(b)) << 16;
}
QUIRE_DEVICE uint32_t PackFiniteF16(float a, float b) {
  constexpr float kMost = 65504.0f;
  const auto finite = [](float x) { return x > kMost ? kMost : x < -kMost ? -kMost : x; };
  return PackF16(finite(a), finite(b));
}
QUIRE_DEVICE uint32_t ProductBf16x2(uint32_t a, uint32_t b) {
  return PackBf16(LowBf16(a) * LowBf16(b), HighBf16(a) * HighBf16(b));
}
QUIRE_DEVICE float ToFloat(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return FloatOfBits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x0400u) return FloatOfBits(sign | ((rest << 13) + 0x38000000u));
  const float small = static_cast<float>(rest) * 0x1p-24f;
  return FloatOfBits(sign | BitsOfFloat(small));
}
#endif

}  // namespace quire::kernels::cuda::device
