// The int8 class with the dot product of AVX-512 VNNI.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec16_avx512.h"

namespace quire::kernels::cpu {

struct Vec16Int8Vnni : Vec16Avx512 {
  static constexpr bool kUnsignedCodes = true;
  static constexpr bool kDotsInWords = false;
  static constexpr int kInt8TileRows = 6;
  static constexpr int kInt8TilePanels = 2;
  static constexpr int kInt8DirectRows = 16;
  static constexpr int kInt8DirectPairRows = 4;
  static constexpr int kRoundedTileRows = 12;
  static constexpr int kWordDirectRows = 4;
  static const KernelTable& FloatKernels() { return Avx512Kernels(); }

#define QUIRE_INLINE [[gnu::always_inline]] static inline
  template <bool kSigned>
  QUIRE_INLINE I Dot(I acc, I codes, I q) {
    return _mm512_dpbusd_epi32(acc, codes, q);
  }
  QUIRE_INLINE I RoundToInt(F x) { return _mm512_cvtps_epi32(x); }
  QUIRE_INLINE I MaxInt(I a, I b) { return _mm512_max_epi32(a, b); }
  QUIRE_INLINE uint32_t ReduceMaxInt(I x) {
    const __m256i a = _mm256_max_epi32(_mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
    const __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xb1))));
  }
  QUIRE_INLINE int32_t ReduceAddInt(I x) {
    const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
    const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1)));
  }
  QUIRE_INLINE I EvenWords(I a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
  QUIRE_INLINE I OddWords(I a) { return _mm512_srai_epi16(a, 8); }
  QUIRE_INLINE I SubWords(I a, I b) { return _mm512_sub_epi16(a, b); }
  QUIRE_INLINE void DotWords(I& acc, I a, I b) { acc = _mm512_dpwssd_epi32(acc, a, b); }
  QUIRE_INLINE void StoreInts(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
  QUIRE_INLINE void StoreBytes(std::byte* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }
#undef QUIRE_INLINE
};

}  // namespace quire::kernels::cpu
