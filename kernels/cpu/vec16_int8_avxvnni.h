// The int8 class with the dot product of AVX-VNNI: processors with AVX2 that have no AVX-512.
#pragma once

#include "kernels/cpu/vec16_int8_avx2.h"

namespace quire::kernels::cpu {

struct Vec16Int8AvxVnni : Vec16Int8Avx2 {
  static constexpr bool kUnsignedCodes = true;
  static constexpr bool kDotsInWords = false;
  static constexpr int kInt8TileRows = 3;

  template <bool kSigned>
  [[gnu::always_inline]] static inline I Dot(I acc, I codes, I q) {
    return {_mm256_dpbusd_avx_epi32(acc.low, codes.low, q.low),
            _mm256_dpbusd_avx_epi32(acc.high, codes.high, q.high)};
  }
};

}  // namespace quire::kernels::cpu
