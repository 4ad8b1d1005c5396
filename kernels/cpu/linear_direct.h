// Products for few rows: weights are decoded in registers and used at once.
#pragma once

#include <algorithm>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

// How far ahead of use packed weights are fetched.
inline constexpr int kPrefetchBytes = 1536;

// Rows are padded to one of these counts, which kernels are instantiated for.
constexpr int DirectRows(int rows) {
  for (const int count : {1, 2, 4, 8, 12}) {
    if (rows <= count) return count;
  }
  return 16;
}

// One block of K of each panel: acc[row][panel] += w · x, x as [k][row]. Panels alternate every
// four k, so that their chains overlap.
template <class V, DType kType, int kRows, int kPanels>
[[gnu::always_inline]] inline void DirectBlock(const std::byte* const (&panels)[kPanels],
                                               int64_t block, const float* x,
                                               typename V::F (&acc)[kRows][kPanels]) {
  BlockScales<V> scales[kPanels];
  const std::byte* values[kPanels];
  Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
    scales[p] = ReadBlockScales<V, kType>(panels[p], block);
    values[p] = ValuesOf<kType>(panels[p], block);
    for (int line = 0; line < PackedBlockBytes(kType); line += 64) {
      __builtin_prefetch(values[p] + kPrefetchBytes + line);
    }
  });
  const auto four = [&](int quad) __attribute__((always_inline)) {
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      DecodeQuad<V, kType>(
          values[p], scales[p], quad, [&](int i, typename V::F w) __attribute__((always_inline)) {
            const float* at = x + (4 * quad + i) * kRows;
            Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
              acc[r][p] = V::Fma(w, V::Set(at[r]), acc[r][p]);
            });
          });
    });
  };
  if constexpr (kRows == 1) {
    Unroll<8>(four);
  } else {
    for (int quad = 0; quad < 8; ++quad) four(quad);
  }
}

// Both need each accumulator in a register, so every index is a constant.
template <class V, int kRows, int kPanels>
[[gnu::always_inline]] inline void ForEachSum(auto&& function) {
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) { function(r, p); });
  });
}

// totals[row][32] for kRows rows of x, which lie as [k][row].
template <class V, DType kType, int kRows, int kPanels>
void DirectPanels(const std::byte* const (&panels)[kPanels], int64_t k_end, const float* x,
                  float* totals) {
  typename V::F acc[kRows][kPanels];
  for (int64_t begin = 0; begin < k_end; begin += kChunk) {
    const int64_t end = std::min<int64_t>(k_end, begin + kChunk);
    ForEachSum<V, kRows, kPanels>([&](auto r, auto p)
                                      __attribute__((always_inline)) { acc[r][p] = V::Zero(); });
    if constexpr (IsQuantised(kType)) {
      for (int64_t k = begin; k < end; k += kBlock) {
        DirectBlock<V, kType, kRows, kPanels>(panels, k / kBlock, x + k * kRows, acc);
      }
    } else {
      for (int64_t k = begin; k < end; ++k) {
        Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
          const auto w = ReadFloat<V, kType>(panels[p], k);
          Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
            acc[r][p] = V::Fma(w, V::Set(x[k * kRows + r]), acc[r][p]);
          });
        });
      }
    }
    ForEachSum<V, kRows, kPanels>([&](auto r, auto p) __attribute__((always_inline)) {
      float* total = totals + r * 32 + p * 16;
      V::Store(total, begin == 0 ? acc[r][p] : V::Add(V::Load(total), acc[r][p]));
    });
  }
}

// With many rows, registers suffice for one panel only.
template <class V, DType kType, int kRows>
void DirectPair(const std::byte* a, const std::byte* b, int64_t k, const float* x, float* totals) {
  if constexpr (kRows <= V::kDirectPairRows) {
    const std::byte* panels[2] = {a, b};
    DirectPanels<V, kType, kRows, 2>(panels, k, x, totals);
  } else {
    const std::byte* first[1] = {a};
    DirectPanels<V, kType, kRows, 1>(first, k, x, totals);
    const std::byte* second[1] = {b};
    DirectPanels<V, kType, kRows, 1>(second, k, x, totals + 16);
  }
}

template <class V, int kRows>
void DirectUnit(const PackedMatrix& w, const Panel& a, const Panel& b, const float* x,
                float* totals) {
  const DType type_a = w.geometries[a.geometry].type;
  const DType type_b = w.geometries[b.geometry].type;
  if (type_a == type_b) {
    WithType(type_a, [&](auto type) {
      DirectPair<V, decltype(type)::value, kRows>(a.data, b.data, w.k, x, totals);
    });
    return;
  }
  const Panel* both[2] = {&a, &b};
  for (int p = 0; p < 2; ++p) {
    WithType(w.geometries[both[p]->geometry].type, [&](auto type) {
      const std::byte* panels[1] = {both[p]->data};
      DirectPanels<V, decltype(type)::value, kRows, 1>(panels, w.k, x, totals + 16 * p);
    });
  }
}

// Calls function(integral_constant rows) for the padded row counts up to V::kDirectRows.
template <class V, class Function>
[[gnu::always_inline]] inline void WithDirectRows(int rows, Function&& function) {
  Unroll<17>([&](auto count) __attribute__((always_inline)) {
    constexpr int kCount = decltype(count)::value;
    if constexpr (kCount > 0 && kCount <= V::kDirectRows && DirectRows(kCount) == kCount) {
      if (rows == kCount) function(count);
    }
  });
}

}  // namespace quire::kernels::cpu
