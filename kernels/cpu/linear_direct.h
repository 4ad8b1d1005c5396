// Products for few rows: weights are decoded in registers and used at once.
#pragma once

#include <algorithm>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

// totals[panel][16] for one row of x. Panels of one type go side by side, so that chains overlap.
template <class V, DType kType, int kPanels>
void DirectPanels(const std::byte* const (&panels)[kPanels], const PanelGeometry& g, const float* x,
                  float* totals) {
  using F = typename V::F;
  F total[kPanels];
  for (int64_t begin = 0; begin < g.k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(g.k, begin + kChunk);
    F acc[kPanels];
    for (int p = 0; p < kPanels; ++p) acc[p] = V::Zero();
    int64_t k = begin;
    for (; k + kBlock <= end; k += kBlock) {
      for (int p = 0; p < kPanels; ++p) {
        DecodeBlock<V, kType>(
            panels[p], g, k / kBlock, [&](int i, F w) __attribute__((always_inline)) {
              acc[p] = V::Fma(w, V::Set(x[k + i]), acc[p]);
            });
      }
    }
    if constexpr (!IsQuantised(kType)) {
      for (; k < end; ++k) {
        for (int p = 0; p < kPanels; ++p) {
          acc[p] = V::Fma(ReadFloat<V, kType>(panels[p], k), V::Set(x[k]), acc[p]);
        }
      }
    }
    for (int p = 0; p < kPanels; ++p) total[p] = begin == 0 ? acc[p] : V::Add(total[p], acc[p]);
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
