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
  typename V::F half[2];  // halves: integers, or floats
  typename V::F half_minimum[2];
};

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
      const std::byte* at = scales + 16 * h;
      if constexpr (kType == DType::kQ2_K) {
        const auto both = V::LoadUnsignedBytes(at);
        s.half[h] = V::ToFloat(V::And(both, V::SetInt(15)));
        s.half_minimum[h] = V::ToFloat(V::template ShiftRight<4>(both));
      } else if constexpr (gguf::IsGrid(kType)) {
        s.half[h] = GridFactor<V, kType>(scales, h);
      } else {
        s.half[h] = V::ToFloat(V::LoadSignedBytes(at));
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

// acc after a block with halves; `value` is their scaled sum.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::F Int8FoldHalves(typename V::F acc, typename V::F value,
                                                           const Int8Scales<V>& s, Int8Row x) {
  const auto dx = V::Set(x.Float(kInt8Dx));
  acc = V::Fma(value, V::Mul(s.scale, dx), acc);
  if constexpr (kForm.minimum) {
    const auto first = V::Set(static_cast<float>(x.Int(kInt8HalfSums)));
    const auto second = V::Set(static_cast<float>(x.Int(kInt8HalfSums + 1)));
    const auto minima =
        V::Fma(second, s.half_minimum[1], V::Mul(first, s.half_minimum[0]));  // −u: exact
    acc = V::Fma(minima, V::Mul(s.minimum, dx), acc);
  }
  return acc;
}

// A block of kRows rows of x and kPanels panels: codes(quad, panel) are what Dot takes.
template <class V, Int8Form kForm, int kRows, int kPanels, class Codes>
[[gnu::always_inline]] inline void Int8Block(typename V::F (&acc)[kRows][kPanels], const int32_t* x,
                                             int x_rows, const Int8Scales<V> (&scales)[kPanels],
                                             Codes&& codes) {
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
      const auto whole = V::ToFloat(sum[r][p]);
      if constexpr (kForm.own) {
        const auto dx = V::Set(Int8Row{x + r, x_rows}.Float(kInt8Dx));
        acc[r][p] = V::Fma(whole, V::Mul(scales[p].half[part], dx), acc[r][p]);
      } else {
        value[r][p] = part == 0 ? V::Mul(whole, scales[p].half[0])
                                : V::Fma(whole, scales[p].half[1], value[r][p]);
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

}  // namespace quire::kernels::cpu
