#include <immintrin.h>

#include "bench/kernels/probe.h"

namespace quire::bench {

float FmaLoopAvx512(int64_t rounds) {
  __m512 acc[12];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, x);
  }
  float sum = 0.0f;
  for (auto& a : acc) sum += _mm512_cvtss_f32(a);
  return sum;
}

}  // namespace quire::bench
