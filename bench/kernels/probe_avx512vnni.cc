#include <immintrin.h>

#include "bench/kernels/probe.h"

namespace quire::bench {

int DotLoopAvx512Vnni(int64_t rounds, int seed) {
  __m512i acc[12];
  for (auto& a : acc) a = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi32(seed);  // unknown to the compiler
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, x);
  }
  int sum = 0;
  for (auto& a : acc) sum += _mm512_reduce_add_epi32(a);
  return sum;
}

}  // namespace quire::bench
