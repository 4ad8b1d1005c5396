// A block of K of the int8 class: how codes are read, multiplied and added up (int8_form.h has the
// rule of the sums).
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/int8_form.h"
#include "kernels/cpu/linear_direct.h"
#include "kernels/cpu/quantise.h"

namespace quire::kernels::cpu {

// function(0) … function(kCount − 1): unrolled where registers hold what it indexes.
template <class V, int kCount, class Function>
[[gnu::always_inline]] inline void Repeat(Function&& function) {
  if constexpr (V::kUnrollBlocks) {
    Unroll<kCount>(function);
  } else {
    for (int i = 0; i < kCount; ++i) function(i);
  }
}
template <class V, int kRows, int kPanels, class Function>
[[gnu::always_inline]] inline void ForEachOf(Function&& function) {
  Repeat<V, kRows>([&](int r) __attribute__((always_inline)) {
    Repeat<V, kPanels>([&](int p) __attribute__((always_inline)) { function(r, p); });
  });
}

// What the sums of a block are multiplied with, of sixteen rows of weights.
template <class V>
struct Int8Scales {
  typename V::F scale;
  typename V::F minimum;  // G4, G8: the zero; Q2_K: dmin
  typename V::F half[2];  // halves: integers, or floats; kDotsInWords: the bits of an integer twice
  typename V::F half_minimum[2];  // the same of Q2_K's
};

// An integer scale as the second operand of a block's sum: as a float, or as both words of a lane.
template <class V>
[[gnu::always_inline]] inline typename V::F HalfFactor(typename V::I scale) {
  if constexpr (V::kDotsInWords) {
    return V::AsFloat(V::Or(V::And(scale, V::SetInt(0xffff)), V::template ShiftLeft<16>(scale)));
  } else {
    return V::ToFloat(scale);
  }
}

// A type's integer scale of a half.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I HalfScale(const std::byte* scales, int half) {
  if constexpr (gguf::IsGrid(kType)) return GridInteger<V, kType>(scales, half);
  if constexpr (kType == DType::kQ2_K) {
    return V::And(V::LoadUnsignedBytes(scales + 16 * half), V::SetInt(15));
  }
  return V::LoadSignedBytes(scales + 16 * half);
}
// Q2_K: its minimum of a half.
template <class V>
[[gnu::always_inline]] inline typename V::I HalfMinimum(const std::byte* scales, int half) {
  return V::template ShiftRight<4>(V::LoadUnsignedBytes(scales + 16 * half));
}

template <class V, DType kType>
[[gnu::always_inline]] inline Int8Scales<V> ReadInt8Scales(const std::byte* panel, int64_t block) {
  const std::byte* scales = panel + BlockOffset(kType, block);
  const std::byte* supers = panel + SuperOffset(kType, block);
  Int8Scales<V> s{V::Zero(), V::Zero(), {V::Zero(), V::Zero()}, {V::Zero(), V::Zero()}};
  if constexpr (HasOwnScales(kType)) {
    Unroll<2>([&](auto h)
                  __attribute__((always_inline)) { s.half[h] = OwnScale<V, kType>(scales, h); });
  } else if constexpr (grouped::IsGrouped(kType)) {
    const std::byte* head = SuperBytes(kType) > 0 ? supers : scales;
    s.scale = V::AsFloat(V::LoadInt(head));
    if constexpr (grouped::HasZero(kType)) {
      s.minimum = V::ToFloat(V::LoadSignedBytes(head + 64));
    }
  } else if constexpr (HasHalves(kType)) {
    s.scale = V::LoadHalf(supers);
    if constexpr (gguf::IsGrid(kType)) s.scale = V::Mul(s.scale, V::Set(gguf::GridUnit(kType)));
    if constexpr (kType == DType::kQ2_K) s.minimum = V::LoadHalf(supers + 32);
    Unroll<2>([&](auto h) __attribute__((always_inline)) {
      s.half[h] = HalfFactor<V>(HalfScale<V, kType>(scales, h));
      if constexpr (kType == DType::kQ2_K) {
        s.half_minimum[h] = HalfFactor<V>(HalfMinimum<V>(scales, h));
      }
    });
  } else {
    const Scales<V> plain = ReadPlainScales<V, kType>(panel, block, 0);
    s.scale = plain.scale;
    s.minimum = plain.minimum;
  }
  return s;
}

// Four k of each row as Dot takes them.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I ReadDotCodes(const std::byte* values, int quad) {
  auto codes = ReadCodes<V, kType>(values, quad);
  if constexpr (Int8FormOf(kType).is_signed && V::kUnsignedCodes) {
    codes = V::SubBytes(codes, V::SetInt(0x80808080u));
  }
  return codes;
}

// What a chain of dot products starts from: −offset · Σq.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::I Int8Start(int32_t minus_sum) {
  constexpr int kBits = kForm.is_signed ? (V::kUnsignedCodes ? 7 : 0) : kForm.offset_bits;
  if constexpr (kBits == 0) return V::SetInt(0);
  return V::template ShiftLeft<kBits>(V::SetInt(static_cast<uint32_t>(minus_sum)));
}

// The words of a block behind its q, of one row.
struct Int8Row {
  const int32_t* at;
  int rows;
  float Float(int word) const { return std::bit_cast<float>(at[word * rows]); }
  int32_t Int(int word) const { return at[word * rows]; }
};

// acc after a block without halves whose sum is S.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::F Int8Fold(typename V::F acc, typename V::I sum,
                                                     const Int8Scales<V>& s, Int8Row x) {
  auto value = V::ToFloat(sum);
  if constexpr (kForm.zero) {
    value = V::Fma(s.minimum, V::Set(static_cast<float>(x.Int(kInt8Sum))), value);  // exact
  }
  acc = V::Fma(value, V::Mul(s.scale, V::Set(x.Float(kInt8Dx))), acc);
  if constexpr (kForm.minimum) acc = V::Fma(s.minimum, V::Set(x.Float(kInt8DxSum)), acc);
  return acc;
}

// acc after a half with a scale of its own whose sum is S.
template <class V>
[[gnu::always_inline]] inline typename V::F Int8FoldOwn(typename V::F acc, typename V::I sum,
                                                        typename V::F scale, Int8Row x) {
  return V::Fma(V::ToFloat(sum), V::Mul(scale, V::Set(x.Float(kInt8Dx))), acc);
}

// kDotsInWords: −Σq of a half, in words of the k that one word of a product adds up.
template <class V>
[[gnu::always_inline]] inline typename V::I WordSums(Int8Row x, int half) {
  return V::SetInt(static_cast<uint32_t>(x.Int(kInt8HalfSums + half)));
}

// acc after a block with halves; `value` is their scaled sum.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::F Int8FoldHalves(typename V::F acc, typename V::F value,
                                                           const Int8Scales<V>& s, Int8Row x) {
  const auto dx = V::Set(x.Float(kInt8Dx));
  acc = V::Fma(value, V::Mul(s.scale, dx), acc);
  if constexpr (kForm.minimum) {
    typename V::F minima;  // −u: exact
    if constexpr (V::kDotsInWords) {
      auto sum = V::DotOfWords(WordSums<V>(x, 0), V::AsInt(s.half_minimum[0]));
      V::DotWords(sum, WordSums<V>(x, 1), V::AsInt(s.half_minimum[1]));
      minima = V::ToFloat(sum);
    } else {
      const auto first = V::Set(static_cast<float>(x.Int(kInt8HalfSums)));
      const auto second = V::Set(static_cast<float>(x.Int(kInt8HalfSums + 1)));
      minima = V::Fma(second, s.half_minimum[1], V::Fma(first, s.half_minimum[0], V::Zero()));
    }
    acc = V::Fma(minima, V::Mul(s.minimum, dx), acc);
  }
  return acc;
}

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

// Int8Block where a dot product of bytes takes two instructions, of which the second adds pairs of
// words: a word takes the products of as many quads as it can hold (Int8Form::word_quads), and the
// second instruction multiplies with the integer scale of a half.
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
