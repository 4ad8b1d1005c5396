// What a block of the int8 class reads: codes, scales, and the words behind the q of a row
// (int8_form.h has their layout).
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/int8_form.h"

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

// What the sums of a block are multiplied with, for sixteen rows of weights.
template <class V>
struct Int8Scales {
  typename V::F scale;
  typename V::F minimum;  // G4, G8: the zero; Q2_K: dmin
  // Of types with halves: floats of their own (NVFP4, F4_16), or HalfFactor of an integer.
  typename V::F half[2];
  typename V::F half_minimum[2];  // Q2_K: HalfFactor of its minima
};

// An integer as a block's sum is multiplied with it: a float, or with kDotsInWords the bits of two
// equal words in each lane.
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

}  // namespace quire::kernels::cpu
