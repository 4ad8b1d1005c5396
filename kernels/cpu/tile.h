// The register tile: up to kTileRows rows of x against panels of 16 columns, one fma chain per
// output.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/decode.h"

namespace quire::kernels::cpu {

// The layout of x for a tile: element (k, row) is at k · kStrideK + row · kStrideRow.
template <int kK, int kRow>
struct XLayout {
  static constexpr int kStrideK = kK;
  static constexpr int kStrideRow = kRow;
};

// acc[row][panel] += Σ_k w(k, panel) · x(k, row), in the order of k. `load(k, panel)` gives 16
// weights.
template <class V, int kRows, int kPanels, class X, class LoadWeights>
[[gnu::always_inline]] inline void MultiplyTile(typename V::F (&acc)[kRows][kPanels],
                                                const float* x, int count, LoadWeights&& load) {
  for (int k = 0; k < count; ++k) {
    typename V::F w[kPanels];
    for (int p = 0; p < kPanels; ++p) w[p] = load(k, p);
    for (int r = 0; r < kRows; ++r) {
      const auto value = V::Set(x[k * X::kStrideK + r * X::kStrideRow]);
      for (int p = 0; p < kPanels; ++p) acc[r][p] = V::Fma(w[p], value, acc[r][p]);
    }
  }
}

// The chain of each output of one panel, whose weights are [k][16]: chains[row][16].
template <class V, int kRows>
[[gnu::noinline]] void ChunkTile(const float* x, const float* weights, int count, float* chains) {
  typename V::F acc[kRows][1];
  for (int r = 0; r < kRows; ++r) acc[r][0] = V::Zero();
  MultiplyTile<V, kRows, 1, XLayout<kRows, 1>>(
      acc, x,
      count, [&](int k, int) __attribute__((always_inline)) { return V::Load(weights + k * 16); });
  for (int r = 0; r < kRows; ++r) V::Store(chains + 16 * r, acc[r][0]);
}

// Calls function(integral_constant rows) for rows in 1 … kMax.
template <int kMax, class Function>
[[gnu::always_inline]] inline void WithRows(int rows, Function&& function) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return WithRows<kMax - 1>(rows, std::forward<Function>(function));
  }
  function(std::integral_constant<int, kMax>{});
}

}  // namespace quire::kernels::cpu
