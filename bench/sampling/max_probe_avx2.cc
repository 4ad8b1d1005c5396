#include "bench/sampling/max_probe.h"

#include <immintrin.h>

#include <algorithm>

namespace quire::bench {

float ReadForMax(std::span<const float> row) {
  __m256 best[4];
  for (__m256& lane : best) lane = _mm256_set1_ps(-3.4e38f);
  size_t i = 0;
  for (; i + 32 <= row.size(); i += 32) {
    for (size_t k = 0; k < 4; ++k) {
      best[k] = _mm256_max_ps(best[k], _mm256_loadu_ps(row.data() + i + 8 * k));
    }
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes,
                  _mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3])));
  float largest = *std::max_element(lanes, lanes + 8);
  for (; i < row.size(); ++i) largest = std::max(largest, row[i]);
  return largest;
}

}  // namespace quire::bench
