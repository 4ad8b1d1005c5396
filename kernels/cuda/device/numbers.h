// bfloat16 and float16 as they are stored, and the few functions of arithmetic that both compilers
// round alike.
//
// Kernel files are compiled without contraction of a · b + c: a fused one is written Fma. Sums,
// products, quotients and roots are rounded correctly on both sides, so a kernel that uses nothing
// else gives the same bits on a GPU and emulated.
#pragma once

#include "kernels/cuda/device/kernel.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <cmath>
#endif

namespace quire::kernels::cuda::device {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

#ifdef __CUDACC__
#define QUIRE_BOTH __host__ __device__ __forceinline__
#else
#define QUIRE_BOTH [[gnu::always_inline]] inline
#endif

QUIRE_BOTH float FloatOfBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
QUIRE_BOTH uint32_t BitsOfFloat(float x) { return __builtin_bit_cast(uint32_t, x); }

QUIRE_BOTH float ToFloat(Bf16 x) { return FloatOfBits(static_cast<uint32_t>(x.bits) << 16); }
QUIRE_BOTH float ToFloat(float x) { return x; }
// To the nearest, ties to even; a NaN stays one.
QUIRE_BOTH uint16_t Bf16Bits(float x) {
  const uint32_t bits = BitsOfFloat(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#ifdef __CUDACC__
QUIRE_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
QUIRE_DEVICE float Sqrt(float x) { return __fsqrt_rn(x); }
// Two floats rounded to bfloat16, a in the low half: one instruction.
QUIRE_DEVICE uint32_t PackBf16(float a, float b) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(out) : "f"(b), "f"(a));
  return out;
}
#else
QUIRE_DEVICE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
QUIRE_DEVICE float Sqrt(float x) { return __builtin_sqrtf(x); }
QUIRE_DEVICE uint32_t PackBf16(float a, float b) {
  return Bf16Bits(a) | static_cast<uint32_t>(Bf16Bits(b)) << 16;
}
#endif
// The two bfloat16 numbers of a word.
QUIRE_DEVICE float LowBf16(uint32_t word) { return FloatOfBits(word << 16); }
QUIRE_DEVICE float HighBf16(uint32_t word) { return FloatOfBits(word & 0xffff0000u); }

}  // namespace quire::kernels::cuda::device
