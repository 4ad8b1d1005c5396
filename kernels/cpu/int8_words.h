// A block of the int8 class on AVX2: products of bytes are added up in words of 16 bits, exactly.
#pragma once

#include "kernels/cpu/int8_fold.h"

namespace quire::kernels::cpu {

// What the words of a half, or of a whole block, start from: −offset · Σq of each.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::I WordStart(Int8Row x, int half) {
  auto sums = WordSums<V>(x, half);
  if constexpr (!kForm.halves) V::AddWords(sums, WordSums<V>(x, 1));
  return V::template ShiftWordsLeft<kForm.offset_bits>(sums);
}

// Quads kFirst … kFirst + kQuads − 1 of a block into sums, through words; kFresh: sums have nothing
// yet.
template <class V, Int8Form kForm, int kFirst, int kQuads, bool kFresh, int kRows, int kPanels,
          class Codes>
[[gnu::always_inline]] inline void Int8WordQuads(typename V::I (&sum)[kRows][kPanels],
                                                 const typename V::I (&factor)[kPanels],
                                                 const int32_t* x, int x_rows, Codes&& codes) {
  const auto add = [&](int r, int p, typename V::I words) __attribute__((always_inline)) {
    if constexpr (kFresh) {
      sum[r][p] = V::DotOfWords(words, factor[p]);
    } else {
      V::DotWords(sum[r][p], words, factor[p]);
    }
  };
  const auto product = [&](int quad, int r, typename V::I code) __attribute__((always_inline)) {
    const auto q = V::SetInt(static_cast<uint32_t>(x[quad * x_rows + r]));
    return V::template QuadWords<kForm.is_signed>(code, q);
  };
  if constexpr (kQuads <= 2) {  // codes in registers, rows one after the other
    typename V::I code[kQuads][kPanels];
    ForEachOf<V, kQuads, kPanels>([&](int i, int p) __attribute__((always_inline)) {
      code[i][p] = codes(kFirst + i, p);
    });
    ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
      auto words = product(kFirst, r, code[0][p]);
      if constexpr (kQuads == 2) V::AddWords(words, product(kFirst + 1, r, code[1][p]));
      add(r, p, words);
    });
    return;
  }
  typename V::I words[kRows][kPanels];  // in registers, codes one after the other
  if constexpr (kForm.offset_bits > 0) {
    ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
      words[r][p] = WordStart<V, kForm>({x + r, x_rows}, kFirst / 4);
    });
  }
  Unroll<kQuads>([&](auto i) __attribute__((always_inline)) {
    constexpr int kQuad = kFirst + decltype(i)::value;
    typename V::I code[kPanels];
    Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) { code[p] = codes(kQuad, p); });
    ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
      if constexpr (kQuad == kFirst && kForm.offset_bits == 0) {
        words[r][p] = product(kQuad, r, code[p]);
      } else {
        V::AddWords(words[r][p], product(kQuad, r, code[p]));
      }
    });
  });
  ForEachOf<V, kRows, kPanels>([&](int r, int p)
                                   __attribute__((always_inline)) { add(r, p, words[r][p]); });
}

// Int8Block for instruction sets whose dot product of bytes takes two instructions. A word takes
// the products of as many quads as it can hold (Int8Form::word_quads). The second instruction adds
// pairs of words, and multiplies them with the integer scale of a half.
template <class V, Int8Form kForm, int kRows, int kPanels, class Codes>
[[gnu::always_inline]] inline void Int8WordBlock(typename V::F (&acc)[kRows][kPanels],
                                                 const int32_t* x, int x_rows,
                                                 const Int8Scales<V> (&scales)[kPanels],
                                                 Codes&& codes) {
  constexpr int kQuads = std::min(kForm.word_quads, kForm.halves ? 4 : 8);
  constexpr bool kScaled = kForm.halves && !kForm.own;
  static_assert(kForm.offset_bits == 0 || kQuads == (kForm.halves ? 4 : 8));
  typename V::I sum[kRows][kPanels];
  Unroll<8 / kQuads>([&](auto group) __attribute__((always_inline)) {
    constexpr int kFirst = decltype(group)::value * kQuads;
    constexpr int kHalf = kFirst / 4;
    constexpr bool kFresh = kFirst == 0 || (kForm.own && kFirst == 4);
    typename V::I factor[kPanels];
    Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) {
      factor[p] = kScaled ? V::AsInt(scales[p].half[kHalf]) : V::SetInt(0x00010001u);
    });
    Int8WordQuads<V, kForm, kFirst, kQuads, kFresh>(sum, factor, x, x_rows, codes);
    if constexpr (kForm.own && (kFirst + kQuads) % 4 == 0) {
      ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
        acc[r][p] = Int8FoldOwn<V>(acc[r][p], sum[r][p], scales[p].half[kHalf], {x + r, x_rows});
      });
    }
  });
  if constexpr (kForm.own) return;
  ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
    const Int8Row row{x + r, x_rows};
    if constexpr (kForm.halves) {
      acc[r][p] = Int8FoldHalves<V, kForm>(acc[r][p], V::ToFloat(sum[r][p]), scales[p], row);
    } else {
      acc[r][p] = Int8Fold<V, kForm>(acc[r][p], sum[r][p], scales[p], row);
    }
  });
}

}  // namespace quire::kernels::cpu
