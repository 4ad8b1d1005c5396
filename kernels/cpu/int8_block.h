// A block of K of the int8 class: how codes are multiplied and added up (int8_form.h has the rule
// of the sums).
#pragma once

#include "kernels/cpu/int8_words.h"

namespace quire::kernels::cpu {

// A block of kRows rows of x and kPanels panels: codes(quad, panel) are what Dot takes.
template <class V, Int8Form kForm, int kRows, int kPanels, class Codes>
[[gnu::always_inline]] inline void Int8Block(typename V::F (&acc)[kRows][kPanels], const int32_t* x,
                                             int x_rows, const Int8Scales<V> (&scales)[kPanels],
                                             Codes&& codes) {
  if constexpr (V::kDotsInWords) {
    return Int8WordBlock<V, kForm, kRows, kPanels>(acc, x, x_rows, scales, codes);
  } else {
    typename V::I sum[kRows][kPanels];
    typename V::F value[kRows][kPanels];
    constexpr int kParts = kForm.halves ? 2 : 1;
    Repeat<V, kParts>([&](int part) __attribute__((always_inline)) {
      Repeat<V, kRows>([&](int r) __attribute__((always_inline)) {
        const int word = kForm.halves ? kInt8HalfSums + part : kInt8Sum;
        const auto start = Int8Start<V, kForm>(Int8Row{x + r, x_rows}.Int(word));
        Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) { sum[r][p] = start; });
      });
      Repeat<V, 8 / kParts>([&](int i) __attribute__((always_inline)) {
        const int quad = 8 / kParts * part + i;
        typename V::I code[kPanels];
        Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) { code[p] = codes(quad, p); });
        Repeat<V, kRows>([&](int r) __attribute__((always_inline)) {
          const auto q = V::SetInt(static_cast<uint32_t>(x[quad * x_rows + r]));
          Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) {
            sum[r][p] = V::template Dot<kForm.is_signed>(sum[r][p], code[p], q);
          });
        });
      });
      if constexpr (!kForm.halves) return;
      ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
        if constexpr (kForm.own) {
          acc[r][p] = Int8FoldOwn<V>(acc[r][p], sum[r][p], scales[p].half[part], {x + r, x_rows});
        } else {
          const auto before = part == 0 ? V::Zero() : value[r][p];
          value[r][p] = V::Fma(V::ToFloat(sum[r][p]), scales[p].half[part], before);
        }
      });
    });
    if constexpr (kForm.own) return;
    ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
      const Int8Row row{x + r, x_rows};
      if constexpr (kForm.halves) {
        acc[r][p] = Int8FoldHalves<V, kForm>(acc[r][p], value[r][p], scales[p], row);
      } else {
        acc[r][p] = Int8Fold<V, kForm>(acc[r][p], sum[r][p], scales[p], row);
      }
    });
  }
}

}  // namespace quire::kernels::cpu
