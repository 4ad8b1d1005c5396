// What takes several instructions on the eight lanes of one AVX2 register. Only files that are
// compiled for AVX2 include it.
#pragma once

#include <immintrin.h>

namespace quire::kernels::cpu {

// A permutation reads the lowest three bits; the fourth, moved to the sign, chooses a half.
[[gnu::always_inline]] inline __m256 LookUpEight(__m256i codes, const float (&table)[16]) {
  const __m256 first = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), codes);
  const __m256 second = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), codes);
  return _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}

// bfloat16 in the low half of each lane: the nearest even one, NaN stays NaN.
[[gnu::always_inline]] inline __m256i RoundEightToBFloat(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
}

// Byte kByte of each lane at its top, zeros below.
template <int kByte>
[[gnu::always_inline]] inline __m256i ByteToTopOfEight(__m256i lanes) {
  if constexpr (kByte == 0) return _mm256_slli_epi32(lanes, 24);
  if constexpr (kByte == 3) {
    return _mm256_and_si256(lanes, _mm256_set1_epi32(static_cast<int>(0xff000000u)));
  }
  // An index with its highest bit set gives zero.
  constexpr int kZero = 0x00808080;
  const __m256i index = _mm256_setr_epi32(
      kZero | (kByte << 24), kZero | ((4 + kByte) << 24), kZero | ((8 + kByte) << 24),
      kZero | ((12 + kByte) << 24), kZero | (kByte << 24), kZero | ((4 + kByte) << 24),
      kZero | ((8 + kByte) << 24), kZero | ((12 + kByte) << 24));
  return _mm256_shuffle_epi8(lanes, index);
}

}  // namespace quire::kernels::cpu
