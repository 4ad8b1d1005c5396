#include <immintrin.h>

#include "bench/kernels/probe.h"

namespace quire::bench {

float FmaLoopAvx2(int64_t rounds) {
  __m256 acc[12];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < 2 * rounds; ++i) {
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, x);
  }
  float sum = 0.0f;
  for (auto& a : acc) sum += _mm256_cvtss_f32(a);
  return sum;
}

}  // namespace quire::bench
