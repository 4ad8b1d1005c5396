// Scales of packed panels: what sixteen rows' codes are multiplied by, and what is added.
#pragma once

#include "kernels/cpu/formats.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/grid_blocks.h"

namespace quire::kernels::cpu {

// The factor (over 2^24) and the addend of each row for 16 k (HasHalves) or 32 k. Of grouped
// formats and IQ1 the addend is the zero: of G4 as integers in every byte, of G8 times 2^24, of IQ1
// as nibbles of every byte, the low one for the first of two eights. NF4 and FP4 have the
// plain factor, and F8 has it times 2^120.
template <class V>
struct Scales {
  typename V::F scale;
  typename V::F minimum;
};

// The lowest byte of each lane in all four.
template <class V>
[[gnu::always_inline]] inline typename V::I InEveryByte(typename V::I lanes) {
  const auto pair = V::Or(lanes, V::template ShiftLeft<8>(lanes));
  return V::Or(pair, V::template ShiftLeft<16>(pair));
}

// `at` has sixteen scales and, behind them, sixteen zeros.
template <class V, DType kType>
[[gnu::always_inline]] inline Scales<V> ReadGroupedScales(const std::byte* at) {
  Scales<V> s{V::AsFloat(V::LoadInt(at)), V::Zero()};
  if constexpr (grouped::HasFloatTable(kType)) return s;
  if constexpr (kType == DType::kF8) return {V::Mul(s.scale, V::Set(0x1p120f)), s.minimum};
  s.scale = V::Mul(s.scale, V::Set(0x1p-24f));
  if constexpr (kType == DType::kG8) {
    s.minimum = V::Mul(V::ToFloat(V::LoadSignedBytes(at + 64)), V::Set(0x1p24f));
  } else {
    s.minimum = V::AsFloat(InEveryByte<V>(V::LoadUnsignedBytes(at + 64)));
  }
  return s;
}

// The scale of a half of NVFP4 and F4_16, halved because their table is doubled.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F OwnScale(const std::byte* scales, int half) {
  if constexpr (kType == DType::kF4_16) {
    return V::Mul(V::AsFloat(V::LoadInt(scales + 64 * half)), V::Set(0.5f));
  } else {
    // Exponent and mantissa where float32 has them: too small by 2^120.
    const auto codes = V::template ShiftLeft<20>(V::LoadUnsignedBytes(scales + 16 * half));
    return V::Mul(V::AsFloat(codes), V::Set(0x1p119f));
  }
}

// 2 s + 1 of a half of a grid type, whose scale is s (grid_blocks.h: a byte is GridScaleByte).
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::I GridInteger(const std::byte* scales, int half) {
  const auto one = V::SetInt(1);
  if constexpr (gguf::IsIq1(kType)) {
    const auto bytes = V::LoadUnsignedBytes(scales + (HasHalves(kType) ? 16 * half : 0));
    return V::Or(V::And(V::template ShiftRight<1>(bytes), V::SetInt(14)), one);
  } else {
    const auto bytes = V::LoadUnsignedBytes(scales);
    const auto twice =
        half == 0 ? V::template ShiftLeft<1>(bytes) : V::template ShiftRight<3>(bytes);
    return V::Or(V::And(twice, V::SetInt(30)), one);
  }
}
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F GridFactor(const std::byte* scales, int half) {
  return V::ToFloat(GridInteger<V, kType>(scales, half));
}

// The zeros of IQ1, 7 or 9, of two eights.
template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F GridZeros(const std::byte* scales, int half) {
  const auto bytes = V::LoadUnsignedBytes(scales + (HasHalves(kType) ? 16 * half : 0));
  const auto nibbles = V::AddInt(V::And(bytes, V::SetInt(0x22)), V::SetInt(0x77));
  return V::AsFloat(InEveryByte<V>(nibbles));
}

// Of a format of GGUF, the factor as it is.
template <class V, DType kType>
[[gnu::always_inline]] inline Scales<V> ReadPlainScales(const std::byte* panel, int64_t block,
                                                        int half) {
  const std::byte* scales = panel + BlockOffset(kType, block);
  const std::byte* supers = panel + SuperOffset(kType, block);
  Scales<V> s{V::Zero(), V::Zero()};
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    const auto d = V::LoadHalf(supers);
    const auto dmin = V::LoadHalf(supers + 32);
    s.scale = V::Mul(d, V::ToFloat(V::LoadUnsignedBytes(scales)));
    s.minimum = V::Neg(V::Mul(dmin, V::ToFloat(V::LoadUnsignedBytes(scales + 16))));
  } else if constexpr (kType == DType::kQ6_K || kType == DType::kQ3_K) {
    const auto d = V::LoadHalf(supers);
    s.scale = V::Mul(d, V::ToFloat(V::LoadSignedBytes(scales + 16 * half)));
  } else if constexpr (kType == DType::kQ2_K) {
    const auto d = V::LoadHalf(supers);
    const auto dmin = V::LoadHalf(supers + 32);
    const auto both = V::LoadUnsignedBytes(scales + 16 * half);
    s.scale = V::Mul(d, V::ToFloat(V::And(both, V::SetInt(15))));
    s.minimum = V::Neg(V::Mul(dmin, V::ToFloat(V::template ShiftRight<4>(both))));
  } else if constexpr (gguf::IsGrid(kType) && ScaleBytes(kType) == 0) {
    s.scale = V::LoadHalf(supers);
  } else if constexpr (gguf::IsGrid(kType)) {
    const auto step = V::Mul(V::LoadHalf(supers), V::Set(gguf::GridUnit(kType)));
    s.scale = V::Mul(step, GridFactor<V, kType>(scales, half));
    if constexpr (gguf::IsIq1(kType)) s.minimum = GridZeros<V, kType>(scales, half);
  } else if constexpr (HasOwnScales(kType)) {
    s.scale = OwnScale<V, kType>(scales, half);
  } else if constexpr (kType == DType::kIQ4_XS) {
    s.scale = V::Mul(V::LoadHalf(supers), V::ToFloat(V::LoadSignedBytes(scales)));
  } else if constexpr (kType == DType::kMXFP4) {
    // 2^(e − 127) from its exponent, halved because the table is doubled.
    const auto power = V::AsFloat(V::template ShiftLeft<23>(V::LoadUnsignedBytes(scales)));
    s.scale = V::Mul(power, V::Set(0.5f));
  } else if constexpr (HasMinimum(kType)) {
    s.scale = V::LoadHalf(scales);
    s.minimum = V::LoadHalf(scales + 32);
  } else {
    s.scale = V::LoadHalf(scales);
  }
  return s;
}

template <class V, DType kType>
[[gnu::always_inline]] inline Scales<V> ReadScales(const std::byte* panel, int64_t block,
                                                   int half) {
  if constexpr (grouped::IsGrouped(kType) && !HasOwnScales(kType)) {
    return ReadGroupedScales<V, kType>(
        panel + (SuperBytes(kType) > 0 ? SuperOffset(kType, block) : BlockOffset(kType, block)));
  }
  Scales<V> s = ReadPlainScales<V, kType>(panel, block, half);
  s.scale = V::Mul(s.scale, V::Set(0x1p-24f));
  return s;
}

// The scales of one block: of its first and its second 16 k (the same except where HasHalves).
template <class V>
struct BlockScales {
  Scales<V> half[2];
};

template <class V, DType kType>
[[gnu::always_inline]] inline BlockScales<V> ReadBlockScales(const std::byte* panel,
                                                             int64_t block) {
  const Scales<V> first = ReadScales<V, kType>(panel, block, 0);
  if constexpr (!HasHalves(kType)) return {{first, first}};
  return {{first, ReadScales<V, kType>(panel, block, 1)}};
}

}  // namespace quire::kernels::cpu
