// Turning packed panels into float32 weights, 16 rows at a time, in the order of K.
//
// The weight that a kernel multiplies is the float32 that its format defines: d · q for the scaled
// formats (one rounding), fma(d, q, m) or fma(d · scale, q, −dmin · min) for those with a minimum.
// So the order and the bits of a sum depend on K and the format alone.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cpu/packed_matrix.h"

namespace quire::kernels::cpu {

template <int... kIndex, class Function>
[[gnu::always_inline]] inline void UnrollSequence(std::integer_sequence<int, kIndex...>,
                                                  Function&& function) {
  (function(std::integral_constant<int, kIndex>{}), ...);
}

// function(integral_constant 0) … function(integral_constant kCount − 1).
template <int kCount, class Function>
[[gnu::always_inline]] inline void Unroll(Function&& function) {
  UnrollSequence(std::make_integer_sequence<int, kCount>{}, std::forward<Function>(function));
}

// Decodes four k that lie in the bytes of a vector of lanes: bits kShift … of each byte.
template <class V, int kByte, int kShift, int kMask>
[[gnu::always_inline]] inline typename V::I Field(typename V::I lanes) {
  return V::And(V::template ShiftRight<8 * kByte + kShift>(lanes), V::SetInt(kMask));
}

constexpr bool IsQuantised(DType type) { return BlockElements(type) > 1; }
constexpr bool HasMinimum(DType type) {
  return type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K ||
         type == DType::kQ5_K;
}
constexpr bool HasFifthBit(DType type) {
  return type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K;
}
// What is subtracted from a stored value.
constexpr int Offset(DType type) {
  if (type == DType::kQ4_0) return 8;
  if (type == DType::kQ5_0) return 16;
  return type == DType::kQ6_K ? 32 : 0;
}
constexpr int ValueBytes(DType type) {  // of a block of 32 k
  if (type == DType::kQ8_0) return 512;
  if (type == DType::kQ6_K) return 384;
  return HasFifthBit(type) ? 320 : 256;
}

// The factor and the addend of each row for 16 k (Q6_K) or 32 k.
template <class V>
struct Scales {
  typename V::F scale;
  typename V::F minimum;
};

template <class V, DType kType>
[[gnu::always_inline]] inline Scales<V> ReadScales(const std::byte* panel, const PanelGeometry& g,
                                                   int64_t block, int half) {
  const std::byte* blocks = panel + g.block_scale_offset;
  const std::byte* supers = panel + g.super_scale_offset;
  Scales<V> s{V::Zero(), V::Zero()};
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    const auto d = V::LoadHalf(supers + block / 8 * 64);
    const auto dmin = V::LoadHalf(supers + block / 8 * 64 + 32);
    s.scale = V::Mul(d, V::ToFloat(V::LoadUnsignedBytes(blocks + block * 32)));
    s.minimum = V::Neg(V::Mul(dmin, V::ToFloat(V::LoadUnsignedBytes(blocks + block * 32 + 16))));
  } else if constexpr (kType == DType::kQ6_K) {
    const auto d = V::LoadHalf(supers + block / 8 * 32);
    s.scale = V::Mul(d, V::ToFloat(V::LoadSignedBytes(blocks + block * 32 + 16 * half)));
  } else if constexpr (HasMinimum(kType)) {
    s.scale = V::LoadHalf(blocks + block * 64);
    s.minimum = V::LoadHalf(blocks + block * 64 + 32);
  } else {
    s.scale = V::LoadHalf(blocks + block * 32);
  }
  return s;
}

// The vectors that hold eight k of a block: `group` is 0 … 3.
template <class V>
struct EightK {
  typename V::I values[2];  // one byte per k (Q8_0), or two nibbles per byte in the first
  typename V::I high;       // the high bits of these k in the lowest bits of each byte's field
};

template <class V, DType kType>
[[gnu::always_inline]] inline EightK<V> ReadEight(const std::byte* values, int group) {
  EightK<V> eight;
  if constexpr (kType == DType::kQ8_0) {
    eight.values[0] = V::LoadInt(values + group * 128);
    eight.values[1] = V::LoadInt(values + group * 128 + 64);
  } else {
    eight.values[0] = V::LoadInt(values + group * 64);
    if constexpr (HasFifthBit(kType)) {
      eight.high = V::ShiftRightBy(V::LoadInt(values + 256), 2 * group);
    } else if constexpr (kType == DType::kQ6_K) {
      eight.high = V::ShiftRightBy(V::LoadInt(values + 256 + group / 2 * 64), group % 2 * 4);
    }
  }
  return eight;
}

// The stored value of k = kIndex (0 … 7) of the eight, as a float.
template <class V, DType kType, int kIndex>
[[gnu::always_inline]] inline typename V::F ReadValue(const EightK<V>& eight) {
  constexpr int kByte = kIndex % 4;
  constexpr int kUpper = kIndex / 4;
  if constexpr (kType == DType::kQ8_0) {
    return V::ToFloat(V::template ShiftRightSigned<24>(
        V::template ShiftLeft<24 - 8 * kByte>(eight.values[kUpper])));
  } else {
    auto q = Field<V, kByte, 4 * kUpper, 15>(eight.values[0]);
    if constexpr (HasFifthBit(kType)) {
      q = V::Or(q, V::template ShiftLeft<4>(Field<V, kByte, kUpper, 1>(eight.high)));
    } else if constexpr (kType == DType::kQ6_K) {
      q = V::Or(q, V::template ShiftLeft<4>(Field<V, kByte, 2 * kUpper, 3>(eight.high)));
    }
    if constexpr (Offset(kType) != 0) q = V::AddInt(q, V::SetInt(-Offset(kType)));
    return V::ToFloat(q);
  }
}

template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F Scaled(const Scales<V>& s, typename V::F value) {
  if constexpr (HasMinimum(kType)) return V::Fma(s.scale, value, s.minimum);
  return V::Mul(s.scale, value);
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

// Calls use(i, weights of k = 32 · block + i) for i = 0 … 31.
template <class V, DType kType, class Use>
[[gnu::always_inline]] inline void DecodeBlock(const std::byte* panel, const PanelGeometry& g,
                                               int64_t block, Use&& use) {
  if constexpr (IsQuantised(kType)) {
    const std::byte* values = panel + block * ValueBytes(kType);
    const Scales<V> first = ReadScales<V, kType>(panel, g, block, 0);
    const Scales<V> second =
        kType == DType::kQ6_K ? ReadScales<V, kType>(panel, g, block, 1) : first;
    for (int group = 0; group < 4; ++group) {
      const Scales<V> s = group < 2 ? first : second;
      const EightK<V> eight = ReadEight<V, kType>(values, group);
      Unroll<8>([&](auto i) __attribute__((always_inline)) {
        constexpr int kIndex = decltype(i)::value;
        use(group * 8 + kIndex, Scaled<V, kType>(s, ReadValue<V, kType, kIndex>(eight)));
      });
    }
  } else {
    for (int i = 0; i < kBlock; i += 2) {
      use(i, ReadFloat<V, kType>(panel, block * kBlock + i));
      use(i + 1, ReadFloat<V, kType>(panel, block * kBlock + i + 1));
    }
  }
}

// Weights of k = begin … end − 1 as [k][16] float32. `begin` is a multiple of 32.
template <class V, DType kType>
void DecodeRange(const std::byte* panel, const PanelGeometry& g, int64_t begin, int64_t end,
                 float* out) {
  int64_t k = begin;
  for (; k + kBlock <= end; k += kBlock) {
    DecodeBlock<V, kType>(
        panel, g, k / kBlock, [&](int i, typename V::F w) __attribute__((always_inline)) {
          V::Store(out + (k - begin + i) * 16, w);
        });
  }
  if constexpr (!IsQuantised(kType)) {
    for (; k < end; ++k) V::Store(out + (k - begin) * 16, ReadFloat<V, kType>(panel, k));
  }
}

// Calls function(integral_constant<DType, type>).
template <class Function>
[[gnu::always_inline]] inline void WithType(DType type, Function&& function) {
  switch (type) {
#define QUIRE_TYPE(name) \
  case DType::name:      \
    return function(std::integral_constant<DType, DType::name>{})
    QUIRE_TYPE(kF32);
    QUIRE_TYPE(kF16);
    QUIRE_TYPE(kBF16);
    QUIRE_TYPE(kQ8_0);
    QUIRE_TYPE(kQ4_0);
    QUIRE_TYPE(kQ4_1);
    QUIRE_TYPE(kQ5_0);
    QUIRE_TYPE(kQ5_1);
    QUIRE_TYPE(kQ4_K);
    QUIRE_TYPE(kQ5_K);
    QUIRE_TYPE(kQ6_K);
#undef QUIRE_TYPE
  }
}

template <class V>
void DecodeAny(const std::byte* panel, const PanelGeometry& g, int64_t begin, int64_t end,
               float* out) {
  WithType(g.type,
           [&](auto type) { DecodeRange<V, decltype(type)::value>(panel, g, begin, end, out); });
}

}  // namespace quire::kernels::cpu
