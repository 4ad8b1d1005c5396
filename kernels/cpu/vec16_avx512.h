// Sixteen lanes in one AVX-512 register. Each member gives the bits of its twin in vec16_plain.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire::kernels::cpu {

struct Vec16Avx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kTileRows = 12;
  static constexpr int kTilePanels = 2;
  static constexpr bool kUnrollBlocks = true;
  static constexpr int kDirectRows = 16;     // up to here weights are decoded in registers
  static constexpr int kDirectPairRows = 8;  // … for two panels at a time

#define QUIRE_INLINE [[gnu::always_inline]] static inline
  QUIRE_INLINE __mmask16 FirstLanes(int n) {
    return n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1);
  }

  QUIRE_INLINE F Set(float x) { return _mm512_set1_ps(x); }
  QUIRE_INLINE F Zero() { return _mm512_setzero_ps(); }
  QUIRE_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
  QUIRE_INLINE F LoadPartial(const float* p, int n) {
    return _mm512_maskz_loadu_ps(FirstLanes(n), p);
  }
  QUIRE_INLINE void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  QUIRE_INLINE void StorePartial(float* p, F x, int n) {
    _mm512_mask_storeu_ps(p, FirstLanes(n), x);
  }
  QUIRE_INLINE void Transpose(const float* from, int64_t stride, float* to) {
    __m512 fours[16];  // of rows i … i + 3: their column 4 l + j in lane l of entry i + j
    for (int i = 0; i < 16; i += 4) {
      const __m512 a = Load(from + i * stride), b = Load(from + (i + 1) * stride);
      const __m512 c = Load(from + (i + 2) * stride), d = Load(from + (i + 3) * stride);
      const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
      const __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
      const __m512d high_ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
      const __m512d high_cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
      fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
      fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
      fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high_ab, high_cd));
      fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high_ab, high_cd));
    }
    for (int j = 0; j < 4; ++j) {
      const __m512 even = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
      const __m512 odd = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
      const __m512 later_even = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
      const __m512 later_odd = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
      Store(to + 16 * j, _mm512_shuffle_f32x4(even, later_even, 0x88));
      Store(to + 16 * (4 + j), _mm512_shuffle_f32x4(odd, later_odd, 0x88));
      Store(to + 16 * (8 + j), _mm512_shuffle_f32x4(even, later_even, 0xdd));
      Store(to + 16 * (12 + j), _mm512_shuffle_f32x4(odd, later_odd, 0xdd));
    }
  }
  QUIRE_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  QUIRE_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  QUIRE_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  QUIRE_INLINE F Div(F a, F b) { return _mm512_div_ps(a, b); }
  QUIRE_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  QUIRE_INLINE F Max(F a, F b) { return _mm512_max_ps(a, b); }
  QUIRE_INLINE F Min(F a, F b) { return _mm512_min_ps(a, b); }
  QUIRE_INLINE F Neg(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  QUIRE_INLINE F Abs(F a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  QUIRE_INLINE F SelectLess(F a, F b, F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }
  QUIRE_INLINE F KeepRange(F x, int begin, int end, float fill) {
    const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                           _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
    return _mm512_mask_blend_ps(keep, _mm512_set1_ps(fill), x);
  }
  QUIRE_INLINE float ReduceAdd(F x) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  QUIRE_INLINE float ReduceMax(F x) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
  }

  QUIRE_INLINE I SetInt(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  QUIRE_INLINE I LoadInt(const std::byte* p) { return _mm512_loadu_si512(p); }
  QUIRE_INLINE I And(I a, I b) { return _mm512_and_si512(a, b); }
  QUIRE_INLINE I Or(I a, I b) { return _mm512_or_si512(a, b); }
  QUIRE_INLINE I AddInt(I a, I b) { return _mm512_add_epi32(a, b); }
  template <int kBits>
  QUIRE_INLINE I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  QUIRE_INLINE I ShiftRight(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  QUIRE_INLINE I ShiftRightSigned(I a, int bits) {
    return _mm512_srai_epi32(a, static_cast<unsigned>(bits));
  }
  // By words of 16 bits.
  template <int kBits>
  QUIRE_INLINE I ShiftLeftWords(I a) {
    return _mm512_slli_epi16(a, kBits);
  }
  template <int kBits>
  QUIRE_INLINE I ShiftRightSignedWords(I a) {
    return _mm512_srai_epi16(a, kBits);
  }
  QUIRE_INLINE I ShiftRightBy(I a, int bits) {
    return _mm512_srli_epi32(a, static_cast<unsigned>(bits));
  }
  QUIRE_INLINE I ShiftLeftBy(I a, int bits) {
    return _mm512_slli_epi32(a, static_cast<unsigned>(bits));
  }
  QUIRE_INLINE I SubBytes(I a, I b) { return _mm512_sub_epi8(a, b); }
  QUIRE_INLINE I LookUp(I a, const int8_t (&table)[16]) {
    const I wide = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return _mm512_shuffle_epi8(wide, a);
  }
  // A permutation reads the lowest four bits.
  QUIRE_INLINE F LookUpFloat(I a, const float (&table)[16]) {
    return _mm512_permutexvar_ps(a, _mm512_loadu_ps(table));
  }
  template <int kByte>
  QUIRE_INLINE I ByteToTop(I a) {
    if constexpr (kByte == 0) return _mm512_slli_epi32(a, 24);
    if constexpr (kByte == 3) return And(a, SetInt(0xff000000u));
    // Only the highest byte of each lane is written.
    constexpr __mmask64 kTop = 0x8888888888888888ull;
    const I index = _mm512_set4_epi32(((12 + kByte) << 24), ((8 + kByte) << 24),
                                      ((4 + kByte) << 24), (kByte << 24));
    return _mm512_maskz_shuffle_epi8(kTop, a, index);
  }
  QUIRE_INLINE F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
  QUIRE_INLINE F AsFloat(I a) { return _mm512_castsi512_ps(a); }
  QUIRE_INLINE I AsInt(F a) { return _mm512_castps_si512(a); }

  QUIRE_INLINE I LoadUnsignedBytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  QUIRE_INLINE I LoadSignedBytes(const std::byte* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  QUIRE_INLINE __m256i Load256(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  QUIRE_INLINE F LoadHalf(const std::byte* p) { return _mm512_cvtph_ps(Load256(p)); }
  QUIRE_INLINE F LoadBFloat(const std::byte* p) {
    return AsFloat(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
  }
  QUIRE_INLINE void StoreHalf(std::byte* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // To the nearest even; NaN stays NaN.
  QUIRE_INLINE void StoreBFloat(std::byte* p, F x) {
    const I bits = AsInt(x);
    const I odd = And(_mm512_srli_epi32(bits, 16), SetInt(1));
    const I rounded = _mm512_srli_epi32(AddInt(AddInt(bits, SetInt(0x7fff)), odd), 16);
    const I quiet = Or(_mm512_srli_epi32(bits, 16), SetInt(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }
#undef QUIRE_INLINE
};

}  // namespace quire::kernels::cpu
