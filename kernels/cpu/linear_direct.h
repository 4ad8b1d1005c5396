// Products for few rows: weights are decoded in registers and used at once.
#pragma once

#include <algorithm>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

// How far ahead of use packed weights are fetched.
inline constexpr int kPrefetchBytes = 1536;

// One block of K of each panel: acc[panel] += Σ w · x. Panels alternate every four k, so that their
// chains overlap.
template <class V, DType kType, int kPanels>
[[gnu::always_inline]] inline void DirectBlock(const std::byte* const (&panels)[kPanels],
                                               int64_t block, const float* x,
                                               typename V::F (&acc)[kPanels]) {
  BlockScales<V> scales[kPanels];
  const std::byte* values[kPanels];
  Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
    scales[p] = ReadBlockScales<V, kType>(panels[p], block);
    values[p] = ValuesOf<kType>(panels[p], block);
    for (int line = 0; line < PackedBlockBytes(kType); line += 64) {
      __builtin_prefetch(values[p] + kPrefetchBytes + line);
    }
  });
  ForEachQuad<V>([&](int quad) __attribute__((always_inline)) {
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      DecodeQuad<V, kType>(
          values[p], scales[p], quad, [&](int i, typename V::F w) __attribute__((always_inline)) {
            acc[p] = V::Fma(w, V::Set(x[4 * quad + i]), acc[p]);
          });
    });
  });
}

// totals[panel][16] for one row of x.
template <class V, DType kType, int kPanels>
void DirectPanels(const std::byte* const (&panels)[kPanels], const PanelGeometry& g, const float* x,
                  float* totals) {
  using F = typename V::F;
  F total[kPanels];
  for (int64_t begin = 0; begin < g.k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(g.k, begin + kChunk);
    F acc[kPanels];
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) { acc[p] = V::Zero(); });
    if constexpr (IsQuantised(kType)) {
      for (int64_t k = begin; k < end; k += kBlock) {
        DirectBlock<V, kType, kPanels>(panels, k / kBlock, x + k, acc);
      }
    } else {
      for (int64_t k = begin; k < end; ++k) {
        Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
          acc[p] = V::Fma(ReadFloat<V, kType>(panels[p], k), V::Set(x[k]), acc[p]);
        });
      }
    }
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      total[p] = begin == 0 ? acc[p] : V::Add(total[p], acc[p]);
    });
  }
  for (int p = 0; p < kPanels; ++p) V::Store(totals + 16 * p, total[p]);
}

template <class V>
void DirectUnit(const PackedMatrix& w, const Panel& a, const Panel& b, const float* x,
                float* totals) {
  const PanelGeometry& ga = w.geometries[a.geometry];
  const PanelGeometry& gb = w.geometries[b.geometry];
  if (ga.type == gb.type) {
    WithType(ga.type, [&](auto type) {
      const std::byte* panels[2] = {a.data, b.data};
      DirectPanels<V, decltype(type)::value, 2>(panels, ga, x, totals);
    });
    return;
  }
  const Panel* both[2] = {&a, &b};
  for (int p = 0; p < 2; ++p) {
    const PanelGeometry& g = w.geometries[both[p]->geometry];
    WithType(g.type, [&](auto type) {
      const std::byte* panels[1] = {both[p]->data};
      DirectPanels<V, decltype(type)::value, 1>(panels, g, x, totals + 16 * p);
    });
  }
}

}  // namespace quire::kernels::cpu
