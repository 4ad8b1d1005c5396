// Sixteen lanes in two AVX2 registers. Each member gives the bits of its twin in vec16_plain.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/eight_avx2.h"

namespace quire::kernels::cpu {

struct Vec16Avx2 {
  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  static constexpr int kTileRows = 6;
  static constexpr int kTilePanels = 1;
  static constexpr bool kUnrollBlocks = true;
  static constexpr int kDirectRows = 4;      // up to here weights are decoded in registers
  static constexpr int kDirectPairRows = 1;  // … for two panels at a time

#define QUIRE_INLINE [[gnu::always_inline]] static inline
#define QUIRE_BOTH(operation) \
  { operation(a.low, b.low), operation(a.high, b.high) }
#define QUIRE_SHIFT(operation, bits) \
  { operation(a.low, bits), operation(a.high, bits) }

  QUIRE_INLINE F Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  QUIRE_INLINE F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  QUIRE_INLINE F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  // All ones in the lanes from `first` on whose number is below n.
  QUIRE_INLINE __m256i Below(int n, int first) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), lane);
  }
  QUIRE_INLINE F LoadPartial(const float* p, int n) {
    if (n >= 16) return Load(p);
    return {_mm256_maskload_ps(p, Below(n, 0)), _mm256_maskload_ps(p + 8, Below(n, 8))};
  }
  QUIRE_INLINE void Store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }
  // Most panels are whole, and a masked store is slow on AMD.
  QUIRE_INLINE void StorePartial(float* p, F x, int n) {
    if (n >= 16) return Store(p, x);
    _mm256_maskstore_ps(p, Below(n, 0), x.low);
    _mm256_maskstore_ps(p + 8, Below(n, 8), x.high);
  }
  QUIRE_INLINE void Transpose(const float* from, int64_t stride, float* to) {
    for (int block = 0; block < 4; ++block) {  // of eight rows and columns
      const int row = block / 2 * 8, column = block % 2 * 8;
      __m256 pairs[8], fours[8];
      for (int i = 0; i < 8; i += 2) {
        const __m256 a = _mm256_loadu_ps(from + (row + i) * stride + column);
        const __m256 b = _mm256_loadu_ps(from + (row + i + 1) * stride + column);
        pairs[i] = _mm256_unpacklo_ps(a, b);
        pairs[i + 1] = _mm256_unpackhi_ps(a, b);
      }
      for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
      }
      for (int i = 0; i < 4; ++i) {
        float* const out = to + 16 * (column + i) + row;
        _mm256_storeu_ps(out, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
        _mm256_storeu_ps(out + 64, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
      }
    }
  }
  QUIRE_INLINE F Add(F a, F b) { return QUIRE_BOTH(_mm256_add_ps); }
  QUIRE_INLINE F Sub(F a, F b) { return QUIRE_BOTH(_mm256_sub_ps); }
  QUIRE_INLINE F Mul(F a, F b) { return QUIRE_BOTH(_mm256_mul_ps); }
  QUIRE_INLINE F Div(F a, F b) { return QUIRE_BOTH(_mm256_div_ps); }
  QUIRE_INLINE F Max(F a, F b) { return QUIRE_BOTH(_mm256_max_ps); }
  QUIRE_INLINE F Min(F a, F b) { return QUIRE_BOTH(_mm256_min_ps); }
  QUIRE_INLINE F Fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  QUIRE_INLINE F Neg(F a) {
    const F b = Set(-0.0f);
    return QUIRE_BOTH(_mm256_xor_ps);
  }
  QUIRE_INLINE F Abs(F b) {
    const F a = Set(-0.0f);
    return QUIRE_BOTH(_mm256_andnot_ps);
  }
  QUIRE_INLINE F SelectLess(F a, F b, F x, F y) {
    return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  QUIRE_INLINE F KeepRange(F x, int begin, int end, float fill) {
    const __m256 other = _mm256_set1_ps(fill);
    const __m256i low = _mm256_andnot_si256(Below(begin, 0), Below(end, 0));
    const __m256i high = _mm256_andnot_si256(Below(begin, 8), Below(end, 8));
    return {_mm256_blendv_ps(other, x.low, _mm256_castsi256_ps(low)),
            _mm256_blendv_ps(other, x.high, _mm256_castsi256_ps(high))};
  }
  QUIRE_INLINE float ReduceAdd(F x) {
    const __m256 a = _mm256_add_ps(x.low, x.high);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  QUIRE_INLINE float ReduceMax(F x) {
    const __m256 a = _mm256_max_ps(x.low, x.high);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
  }

  QUIRE_INLINE I SetInt(uint32_t x) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(x));
    return {all, all};
  }
  QUIRE_INLINE __m256i Load256(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  QUIRE_INLINE I LoadInt(const std::byte* p) { return {Load256(p), Load256(p + 32)}; }
  QUIRE_INLINE I And(I a, I b) { return QUIRE_BOTH(_mm256_and_si256); }
  QUIRE_INLINE I Or(I a, I b) { return QUIRE_BOTH(_mm256_or_si256); }
  QUIRE_INLINE I AddInt(I a, I b) { return QUIRE_BOTH(_mm256_add_epi32); }
  template <int kBits>
  QUIRE_INLINE I ShiftLeft(I a) {
    return QUIRE_SHIFT(_mm256_slli_epi32, kBits);
  }
  template <int kBits>
  QUIRE_INLINE I ShiftRight(I a) {
    return QUIRE_SHIFT(_mm256_srli_epi32, kBits);
  }
  QUIRE_INLINE I ShiftRightSigned(I a, int bits) { return QUIRE_SHIFT(_mm256_srai_epi32, bits); }
  template <int kBits>
  QUIRE_INLINE I ShiftLeftWords(I a) {
    return QUIRE_SHIFT(_mm256_slli_epi16, kBits);
  }
  template <int kBits>
  QUIRE_INLINE I ShiftRightSignedWords(I a) {
    return QUIRE_SHIFT(_mm256_srai_epi16, kBits);
  }
  QUIRE_INLINE I ShiftRightBy(I a, int bits) { return QUIRE_SHIFT(_mm256_srli_epi32, bits); }
  QUIRE_INLINE I ShiftLeftBy(I a, int bits) { return QUIRE_SHIFT(_mm256_slli_epi32, bits); }
  QUIRE_INLINE I SubBytes(I a, I b) { return QUIRE_BOTH(_mm256_sub_epi8); }
  QUIRE_INLINE I LookUp(I a, const int8_t (&table)[16]) {
    const __m256i wide =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(wide, a.low), _mm256_shuffle_epi8(wide, a.high)};
  }
  QUIRE_INLINE F LookUpFloat(I a, const float (&table)[16]) {
    return {LookUpEight(a.low, table), LookUpEight(a.high, table)};
  }
  template <int kByte>
  QUIRE_INLINE I ByteToTop(I a) {
    return {ByteToTopOfEight<kByte>(a.low), ByteToTopOfEight<kByte>(a.high)};
  }
  QUIRE_INLINE F ToFloat(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
  QUIRE_INLINE F AsFloat(I a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
  QUIRE_INLINE I AsInt(F a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }

  QUIRE_INLINE __m128i Load128(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  QUIRE_INLINE I LoadUnsignedBytes(const std::byte* p) {
    const __m128i bytes = Load128(p);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  QUIRE_INLINE I LoadSignedBytes(const std::byte* p) {
    const __m128i bytes = Load128(p);
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  QUIRE_INLINE F LoadHalf(const std::byte* p) {
    return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 16))};
  }
  QUIRE_INLINE F LoadBFloat(const std::byte* p) {
    const I words = {_mm256_cvtepu16_epi32(Load128(p)), _mm256_cvtepu16_epi32(Load128(p + 16))};
    return AsFloat(ShiftLeft<16>(words));
  }
  QUIRE_INLINE void StoreHalf(std::byte* p, F x) {
    __m128i* const to = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(to, _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
  }
  // To the nearest even; NaN stays NaN.
  QUIRE_INLINE void StoreBFloat(std::byte* p, F x) {
    // Packing works within halves of 128 bits; the permutation puts the four quarters in order.
    const __m256i words =
        _mm256_packus_epi32(RoundEightToBFloat(x.low), RoundEightToBFloat(x.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
  }
#undef QUIRE_BOTH
#undef QUIRE_SHIFT
#undef QUIRE_INLINE
};

}  // namespace quire::kernels::cpu
