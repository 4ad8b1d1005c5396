// Arithmetic on the two float16 or bfloat16 numbers of a word, and on its bytes.
#pragma once

#include "kernels/cuda/device/half.h"

namespace quire::kernels::cuda::device {

// Byte i of the result is byte s of a (0 … 3) and b (4 … 7), where s is nibble i of `selector`,
// below 8.
#ifdef __CUDACC__
QUIRE_DEVICE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
#else
QUIRE_DEVICE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7u;
    out |= static_cast<uint32_t>(bytes >> (8 * from) & 255u) << (8 * i);
  }
  return out;
}
#endif

// Both halves of a word are x, rounded.
template <bool kHalf>
QUIRE_DEVICE uint32_t PairOf(float x) {
  return kHalf ? PackF16(x, x) : PackBf16(x, x);
}

// Sums and products of halves, each rounded once; subnormal numbers are numbers.
#ifdef __CUDACC__
template <bool kHalf>
QUIRE_DEVICE uint32_t SumOfPairs(uint32_t a, uint32_t b) {
  uint32_t out;
  if constexpr (kHalf) {
    asm("add.rn.f16x2 %0, %1, %2;\n" : "=r"(out) : "r"(a), "r"(b));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(out) : "r"(a), "r"(0x3f803f80u), "r"(b));
  }
  return out;
}
template <bool kHalf>
QUIRE_DEVICE uint32_t ProductOfPairs(uint32_t a, uint32_t b) {
  if constexpr (!kHalf) return ProductBf16x2(a, b);
  uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
#else
template <bool kHalf>
QUIRE_DEVICE float LowOfPair(uint32_t word) {
  return kHalf ? ToFloat(F16{static_cast<uint16_t>(word)}) : LowBf16(word);
}
template <bool kHalf>
QUIRE_DEVICE float HighOfPair(uint32_t word) {
  return kHalf ? ToFloat(F16{static_cast<uint16_t>(word >> 16)}) : HighBf16(word);
}
// Products of two such numbers, and the sums that kernels make of them, are exact in float32.
template <bool kHalf>
QUIRE_DEVICE uint32_t SumOfPairs(uint32_t a, uint32_t b) {
  const float low = LowOfPair<kHalf>(a) + LowOfPair<kHalf>(b);
  const float high = HighOfPair<kHalf>(a) + HighOfPair<kHalf>(b);
  return kHalf ? PackF16(low, high) : PackBf16(low, high);
}
template <bool kHalf>
QUIRE_DEVICE uint32_t ProductOfPairs(uint32_t a, uint32_t b) {
  const float low = LowOfPair<kHalf>(a) * LowOfPair<kHalf>(b);
  const float high = HighOfPair<kHalf>(a) * HighOfPair<kHalf>(b);
  return kHalf ? PackF16(low, high) : PackBf16(low, high);
}
#endif

// Four codes of e4m3 as bfloat16, exactly: the first two in `low`. A code's bits in the place of
// bfloat16's exponent and mantissa are its value · 2^−120, subnormal ones too.
QUIRE_DEVICE void WidenFp8(uint32_t codes, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kTwoTo120 = 0x7b807b80u;
  const uint32_t pairs[2] = {(codes & 0xffu) << 8 | (codes & 0xff00u) << 16,
                             (codes & 0xff0000u) >> 8 | (codes & 0xff000000u)};
  low = ProductBf16x2((pairs[0] & 0x80008000u) | (pairs[0] >> 4 & 0x07f007f0u), kTwoTo120);
  high = ProductBf16x2((pairs[1] & 0x80008000u) | (pairs[1] >> 4 & 0x07f007f0u), kTwoTo120);
}

}  // namespace quire::kernels::cuda::device
