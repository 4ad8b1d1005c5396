// The int8 class in plain AVX2: pairs of products in 16 bits, which never saturate, then pairs of
// those.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec16_avx2.h"

namespace quire::kernels::cpu {

struct Vec16Int8Avx2 : Vec16Avx2 {
  static constexpr bool kUnsignedCodes = false;
  static constexpr bool kDotsInWords = true;
  static constexpr int kInt8TileRows = 4;
  static constexpr int kInt8TilePanels = 1;
  static constexpr int kInt8DirectRows = 4;
  static constexpr int kInt8DirectPairRows = 1;
  static constexpr int kRoundedTileRows = 6;  // sums, words of weights and products in registers
  static constexpr int kWordDirectRows = 4;
  static const KernelTable& FloatKernels() { return Avx2Kernels(); }

#define QUIRE_INLINE [[gnu::always_inline]] static inline
  // Sums of two products of bytes as words. Of signed codes the magnitude (up to 128) is multiplied
  // and q takes the sign: at most 2 · 128 · 127 = 32,512, since no q is −128.
  template <bool kSigned>
  QUIRE_INLINE __m256i QuadWordsHalf(__m256i codes, __m256i q) {
    if constexpr (kSigned) {
      q = _mm256_sign_epi8(q, codes);
      codes = _mm256_abs_epi8(codes);
    }
    return _mm256_maddubs_epi16(codes, q);
  }
  template <bool kSigned>
  QUIRE_INLINE I QuadWords(I codes, I q) {
    return {QuadWordsHalf<kSigned>(codes.low, q.low), QuadWordsHalf<kSigned>(codes.high, q.high)};
  }
  // An addition is kept where it stands: GCC 12 would add all products up at the end, and keep them
  // in memory until then.
  QUIRE_INLINE void AddWords(I& sum, I more) {
    sum.low = _mm256_add_epi16(sum.low, more.low);
    asm("" : "+x"(sum.low));
    sum.high = _mm256_add_epi16(sum.high, more.high);
    asm("" : "+x"(sum.high));
  }
  template <int kBits>
  QUIRE_INLINE I ShiftWordsLeft(I a) {
    return {_mm256_slli_epi16(a.low, kBits), _mm256_slli_epi16(a.high, kBits)};
  }
  // Of each sixteen bytes, what QuadWords and AddWords make of them with codes of −1.
  QUIRE_INLINE void MinusWordSums(const std::byte* bytes, int32_t (&sums)[2]) {
    const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    const __m256i quads = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    const __m256i two = _mm256_add_epi16(quads, _mm256_shuffle_epi32(quads, 0x4e));
    const __m256i all = _mm256_add_epi16(two, _mm256_shuffle_epi32(two, 0xb1));
    const __m256i minus = _mm256_sub_epi16(_mm256_setzero_si256(), all);
    sums[0] = _mm256_extract_epi32(minus, 0);
    sums[1] = _mm256_extract_epi32(minus, 4);
  }
  QUIRE_INLINE I DotOfWords(I a, I b) {
    return {_mm256_madd_epi16(a.low, b.low), _mm256_madd_epi16(a.high, b.high)};
  }
  QUIRE_INLINE I RoundToInt(F x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
  QUIRE_INLINE I MaxInt(I a, I b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
  }
  QUIRE_INLINE uint32_t ReduceMaxInt(I x) {
    const __m256i a = _mm256_max_epi32(x.low, x.high);
    const __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xb1))));
  }
  QUIRE_INLINE int32_t ReduceAddInt(I x) {
    const __m256i a = _mm256_add_epi32(x.low, x.high);
    const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1)));
  }
  QUIRE_INLINE I EvenWords(I a) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(a.low, 8), 8),
            _mm256_srai_epi16(_mm256_slli_epi16(a.high, 8), 8)};
  }
  QUIRE_INLINE I OddWords(I a) {
    return {_mm256_srai_epi16(a.low, 8), _mm256_srai_epi16(a.high, 8)};
  }
  QUIRE_INLINE I SubWords(I a, I b) {
    return {_mm256_sub_epi16(a.low, b.low), _mm256_sub_epi16(a.high, b.high)};
  }
  // GCC 12 keeps two copies of sums in a loop, unless something may change them.
  QUIRE_INLINE void DotWords(I& acc, I a, I b) {
    acc.low = _mm256_add_epi32(acc.low, _mm256_madd_epi16(a.low, b.low));
    asm("" : "+x"(acc.low));
    acc.high = _mm256_add_epi32(acc.high, _mm256_madd_epi16(a.high, b.high));
    asm("" : "+x"(acc.high));
  }
  QUIRE_INLINE void StoreInts(int32_t* p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.high);
  }
  QUIRE_INLINE void StoreBytes(std::byte* p, I x) {
    // Packing works within halves of 128 bits: words 0-3, 8-11, 4-7, 12-15.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
#undef QUIRE_INLINE
};

}  // namespace quire::kernels::cpu
