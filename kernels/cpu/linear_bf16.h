// Products of the bfloat16 class: activations and weights are rounded to bfloat16, pairs of k are
// multiplied by the processor's dot product and summed in float32.
//
// A separate class: its bits differ from the float32 class, but obey the same rules. Each output is
// one chain of pairs per chunk of K, chunks are added in order, for any number of rows.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/vec16_avx512.h"

namespace quire::kernels::cpu {

// A type of its own, so that no template is shared with files compiled for fewer instructions.
struct Vec16Bf16 : Vec16Avx512 {};

// x as [tile][k / 2][row] pairs of bfloat16, the lower k in the low half; an odd K ends in a zero.
inline void PackPairs(const LinearJob& job, int tile_begin, int tile_end, float* out) {
  const RowTiles tiles(job.rows, Vec16Bf16::kTileRows);
  const int64_t k = job.weight->k;
  const int64_t pairs = (k + 1) / 2;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int begin = tiles.Begin(tile);
    const int rows = tiles.Begin(tile + 1) - begin;
    float* to = out + begin * pairs;
    for (int r = 0; r < rows; ++r) {
      const float* from = job.x + (begin + r) * job.x_stride;
      for (int64_t i = 0; i < pairs; ++i) {
        const uint32_t low = FloatToBFloat(from[2 * i]);
        const uint32_t high = 2 * i + 1 < k ? FloatToBFloat(from[2 * i + 1]) : 0;
        const uint32_t pair = low | (high << 16);
        std::memcpy(to + i * rows + r, &pair, 4);
      }
    }
  }
}

struct PairRange {
  int64_t begin;
  int64_t end;
};

// Weights of k = begin … end − 1 as pairs, [pair][16 rows]: where they are, or in `out`. `wide`
// takes a chunk of float32.
inline const __m512i* DecodePairs(const Panel& panel, const PanelGeometry& g, PairRange range,
                                  float* wide, __m512i* out) {
  const auto [begin, end] = range;
  const int64_t pairs = (end - begin + 1) / 2;
  if (g.type == DType::kBF16) {
    return reinterpret_cast<const __m512i*>(panel.data + begin / 2 * 64);
  }
  DecodeAny<Vec16Bf16>(panel.data, g, begin, end, wide);
  if ((end - begin) % 2 == 1) std::memset(wide + (end - begin) * 16, 0, 64);
  for (int64_t i = 0; i < pairs; ++i) {
    const __m512 low = _mm512_loadu_ps(wide + 32 * i);
    const __m512 high = _mm512_loadu_ps(wide + 32 * i + 16);
    const __m512i low_bits = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    const __m512i high_bits = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    _mm512_storeu_si512(out + i, _mm512_or_si512(low_bits, _mm512_slli_epi32(high_bits, 16)));
  }
  return out;
}

// totals[row][32] = or += the chunk's sums of both panels.
template <int kRows>
void PairTile(const float* x, const __m512i* const (&weights)[2], int pairs, bool first,
              float* totals) {
  __m512 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int i = 0; i < pairs; ++i) {
    const __m512bh a = (__m512bh)_mm512_loadu_si512(weights[0] + i);
    const __m512bh b = (__m512bh)_mm512_loadu_si512(weights[1] + i);
    for (int r = 0; r < kRows; ++r) {
      const __m512bh value = (__m512bh)_mm512_set1_ps(x[i * kRows + r]);
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], a, value);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], b, value);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) {
      float* total = totals + r * 32 + p * 16;
      _mm512_storeu_ps(total, first ? acc[r][p] : _mm512_add_ps(_mm512_loadu_ps(total), acc[r][p]));
    }
  }
}

inline void LinearBFloat(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  using V = Vec16Bf16;
  const PackedMatrix& w = *job.weight;
  const RowTiles tiles(job.rows, V::kTileRows);
  const int64_t row_pairs = (w.k + 1) / 2;
  float* totals = scratch + 2 * 16 * kChunk;
  alignas(64) __m512i pairs[kChunk];  // two panels of kChunk / 2
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel& a = w.panels[unit];
    const Panel& b = PartnerOf(w, unit);
    for (int64_t begin = 0; begin < w.k; begin += kChunk) {
      const int64_t end = std::min<int64_t>(w.k, begin + kChunk);
      const __m512i* const weights[2] = {
          DecodePairs(a, w.geometries[a.geometry], {begin, end}, scratch, pairs),
          DecodePairs(b, w.geometries[b.geometry], {begin, end}, scratch, pairs + kChunk / 2)};
      for (int tile = 0; tile < tiles.count; ++tile) {
        const int first = tiles.Begin(tile);
        const int rows = tiles.Begin(tile + 1) - first;
        const float* x = job.x_tiles + first * row_pairs + begin / 2 * rows;
        WithRows<V::kTileRows>(rows, [&](auto rows_constant) {
          PairTile<decltype(rows_constant)::value>(
              x, weights, static_cast<int>((end - begin + 1) / 2), begin == 0, totals + first * 32);
        });
      }
    }
    FinishRows<V>(job, a, b, {0, job.rows}, totals);
  }
}

}  // namespace quire::kernels::cpu
