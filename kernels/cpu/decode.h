// Turning packed panels into float32 weights, 16 rows at a time, in the order of K.
//
// The weight that a kernel multiplies is the float32 that its format defines. It is d · q for the
// scaled formats (one rounding), fma(d, q, m) or fma(d · scale, q, −dmin · min) for those with a
// minimum. It is d · (q − zero) for the grouped ones and IQ1, whose difference is exact, and
// d · table[q] for NF4 and FP4. So the order and the bits of a sum depend on K and the format
// alone.
#pragma once

#include <type_traits>

#include "kernels/cpu/formats.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/scales.h"

namespace quire::kernels::cpu {

// Shifts lanes left by `bits`, right where it is negative.
template <class V>
[[gnu::always_inline]] inline typename V::I ShiftUp(typename V::I lanes, int bits) {
  return bits >= 0 ? V::ShiftLeftBy(lanes, bits) : V::ShiftRightBy(lanes, -bits);
}

// Four k of each row as the bytes of its lane, before the offset of the format is taken off: below
// 64, except where a format's own codes are signed or have a table. `quad` is 0 … 7.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I ReadCodes(const std::byte* values, int quad) {
  if constexpr (ValueBytes(kType) == 512) {
    return V::LoadInt(values + quad * 64);
  } else if constexpr (gguf::IsIq1(kType)) {
    // Eight times bits 2 (quad % 4) and the next of each byte.
    const auto pairs = V::LoadInt(values + quad / 4 * 64);
    return V::And(ShiftUp<V>(pairs, 3 - quad % 4 * 2), V::SetInt(0x18181818u));
  } else if constexpr (kType == DType::kQ1_0) {
    const auto q = V::And(ShiftUp<V>(V::LoadInt(values), -quad), V::SetInt(0x01010101u));
    return V::LookUp(q, gguf::TableOf(kType));
  } else if constexpr (HasPairs(kType)) {
    // Bits 2 (quad % 4) and the next of each byte.
    const auto pairs = V::LoadInt(values + quad / 4 * 64);
    auto q = V::And(ShiftUp<V>(pairs, -(quad % 4 * 2)), V::SetInt(0x03030303u));
    if constexpr (HasThirdBit(kType)) {
      const auto third = ShiftUp<V>(V::LoadInt(values + 128), 2 - quad);
      q = V::Or(q, V::And(third, V::SetInt(0x04040404u)));
    }
    if constexpr (gguf::HasTable(kType)) return V::LookUp(q, gguf::TableOf(kType));
    return q;
  } else {
    auto nibbles = V::LoadInt(values + quad / 2 * 64);
    if (quad % 2 == 1) nibbles = V::template ShiftRight<4>(nibbles);
    auto q = V::And(nibbles, V::SetInt(0x0f0f0f0fu));
    if constexpr (gguf::HasTable(kType)) return V::LookUp(q, gguf::TableOf(kType));
    if constexpr (HasFifthBit(kType)) {
      // Bit `quad` of each byte, moved to bit 4.
      const auto high = ShiftUp<V>(V::LoadInt(values + 256), 4 - quad);
      q = V::Or(q, V::And(high, V::SetInt(0x10101010u)));
    } else if constexpr (kType == DType::kQ6_K) {
      // Bits 2 (quad % 4) and the next of each byte, moved to bits 4 and 5.
      const auto pairs = V::LoadInt(values + 256 + quad / 4 * 64);
      const auto high = ShiftUp<V>(pairs, 4 - quad % 4 * 2);
      q = V::Or(q, V::And(high, V::SetInt(0x30303030u)));
    }
    return q;
  }
}

// The same as signed bytes, offset taken off.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I ReadBytes(const std::byte* values, int quad) {
  const auto q = ReadCodes<V, kType>(values, quad);
  if constexpr (Offset(kType) == 0) return q;
  return V::SubBytes(q, V::SetInt(Offset(kType) * 0x01010101u));
}

// What those bytes lose where a row has a zero: the same for 32 k, or of IQ1 for eight.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I ZeroBytes(typename V::F zeros, int quad) {
  const auto bytes = V::AsInt(zeros);
  if constexpr (!gguf::IsIq1(kType)) return bytes;
  return V::And(ShiftUp<V>(bytes, -(quad % 4 / 2 * 4)), V::SetInt(0x0f0f0f0fu));
}

// The weight whose code is byte kByte of its lane, of the types with a table of floats.
template <class V, DType kType, int kByte>
[[gnu::always_inline]] inline typename V::F FromTable(const Scales<V>& s, typename V::I codes) {
  const auto lowest = V::template ShiftRight<8 * kByte>(codes);
  return V::Mul(s.scale, V::LookUpFloat(lowest, grouped::FloatTableOf(kType)));
}

// The weight whose byte is at the top of its lane, zeros below.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F Scaled(const Scales<V>& s, typename V::I top) {
  // The byte is q · 2^24; the scale compensates for it without rounding.
  const auto value = V::ToFloat(top);
  if constexpr (kType == DType::kG8) return V::Mul(s.scale, V::Sub(value, s.minimum));
  if constexpr (HasMinimum(kType)) return V::Fma(s.scale, value, s.minimum);
  return V::Mul(s.scale, value);
}

// Calls use(i, weights) for the four e4m3 of each lane. Sign, exponent and mantissa move to where
// float32 has them, two codes at once; they are too small by 2^120, which the scale has.
template <class V, class Use>
[[gnu::always_inline]] inline void DecodeE4m3(typename V::I bytes, typename V::F scale, Use&& use) {
  const auto even = V::template ShiftRightSignedWords<4>(V::template ShiftLeftWords<8>(bytes));
  const auto odd = V::template ShiftRightSignedWords<4>(bytes);
  const auto weight = [&](typename V::I bits) __attribute__((always_inline)) {
    return V::Mul(scale, V::AsFloat(V::And(bits, V::SetInt(0x87f00000u))));
  };
  use(0, weight(V::template ShiftLeft<16>(even)));
  use(1, weight(V::template ShiftLeft<16>(odd)));
  use(2, weight(even));
  use(3, weight(odd));
}

// One weight of each row at k, for the float types.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F ReadFloat(const std::byte* panel, int64_t k) {
  if constexpr (kType == DType::kF32) {
    return V::AsFloat(V::LoadInt(panel + k * 64));
  } else if constexpr (kType == DType::kF16) {
    return V::LoadHalf(panel + k * 32);
  } else {
    const auto pairs = V::LoadInt(panel + k / 2 * 64);
    if (k % 2 == 0) return V::AsFloat(V::template ShiftLeft<16>(pairs));
    return V::AsFloat(V::And(pairs, V::SetInt(0xffff0000u)));
  }
}

template <DType kType>
[[gnu::always_inline]] inline const std::byte* ValuesOf(const std::byte* panel, int64_t block) {
  return panel + BlockOffset(kType, block) + ScaleBytes(kType);
}

// Calls use(i, weights) for the k = 4 · quad + i of a block, i = 0 … 3.
template <class V, DType kType, class Use>
[[gnu::always_inline]] inline void DecodeQuad(const std::byte* values, const BlockScales<V>& scales,
                                              int quad, Use&& use) {
  auto bytes = ReadBytes<V, kType>(values, quad);
  const Scales<V>& s = scales.half[quad < 4 ? 0 : 1];
  if constexpr (HasZeroBytes(kType)) {
    bytes = V::SubBytes(bytes, ZeroBytes<V, kType>(s.minimum, quad));
  }
  if constexpr (kType == DType::kF8) return DecodeE4m3<V>(bytes, s.scale, use);
  Unroll<4>([&](auto i) __attribute__((always_inline)) {
    constexpr int kByte = decltype(i)::value;
    if constexpr (grouped::HasFloatTable(kType)) {
      return use(kByte, FromTable<V, kType, kByte>(s, bytes));
    }
    use(kByte, Scaled<V, kType>(s, V::template ByteToTop<kByte>(bytes)));
  });
}

// Calls four(0) … four(7): unrolled where that pays.
template <class V, class Four>
[[gnu::always_inline]] inline void ForEachQuad(Four&& four) {
  if constexpr (V::kUnrollBlocks) {
    Unroll<8>(four);
  } else {
    for (int quad = 0; quad < 8; ++quad) four(quad);
  }
}

// Weights of k = begin … end − 1 as [k][16] float32. `begin` is a multiple of 32.
template <class V, DType kType>
void DecodeRange(const std::byte* panel, int64_t begin, int64_t end, float* out) {
  if constexpr (IsQuantised(kType)) {
    for (int64_t k = begin; k < end; k += kBlock) {
      const int64_t block = k / kBlock;
      const auto scales = ReadBlockScales<V, kType>(panel, block);
      ForEachQuad<V>([&](int quad) __attribute__((always_inline)) {
        float* to = out + (k - begin + 4 * quad) * 16;
        DecodeQuad<V, kType>(
            ValuesOf<kType>(panel, block), scales,
            quad, [&](int i, typename V::F w) __attribute__((always_inline)) {
              V::Store(to + 16 * i, w);
            });
      });
    }
  } else {
    for (int64_t k = begin; k < end; ++k) {
      V::Store(out + (k - begin) * 16, ReadFloat<V, kType>(panel, k));
    }
  }
}

template <class V>
void DecodeAny(const std::byte* panel, const PanelGeometry& g, int64_t begin, int64_t end,
               float* out) {
  WithType(g.type,
           [&](auto type) { DecodeRange<V, decltype(type)::value>(panel, begin, end, out); });
}

}  // namespace quire::kernels::cpu
