// The differences between the weight formats, as constants that kernels are instantiated with.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/gguf_blocks.h"
#include "kernels/grouped_blocks.h"
#include "kernels/tensor.h"

namespace quire::kernels::cpu {

constexpr bool IsQuantised(DType type) { return BlockElements(type) > 1; }
constexpr bool HasMinimum(DType type) {
  return type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K ||
         type == DType::kQ5_K || type == DType::kQ2_K;
}
constexpr bool HasFifthBit(DType type) {
  return type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K;
}
// The offset that is subtracted from a stored value.
constexpr int Offset(DType type) {
  if (type == DType::kQ4_0) return 8;
  if (type == DType::kQ3_K) return 4;
  if (type == DType::kQ5_0) return 16;
  return type == DType::kQ6_K ? 32 : 0;
}

// Whether each sixteen elements have a scale that is a float of its own, not an integer times one.
constexpr bool HasOwnScales(DType type) { return type == DType::kNVFP4 || type == DType::kF4_16; }
// Whether scales are of sixteen elements, not of 32.
constexpr bool HasHalves(DType type) {
  return type == DType::kQ6_K || type == DType::kQ2_K || type == DType::kQ3_K ||
         type == DType::kIQ1_M || gguf::IsIq2(type) || HasOwnScales(type);
}
// Whether pairs of bits make the codes, alone or with a plane of third bits.
constexpr bool HasPairs(DType type) {
  return type == DType::kQ2_K || type == DType::kQ3_K || gguf::IsIq1(type) || gguf::IsIq2(type) ||
         gguf::IsTernary(type);
}
constexpr bool HasThirdBit(DType type) { return type == DType::kQ3_K || gguf::IsIq2(type); }
// Whether a whole number of each row is taken off the codes as they are read.
constexpr bool HasZeroBytes(DType type) {
  return grouped::HasNibbleZero(type) || gguf::IsIq1(type);
}

// Whether the int8 class multiplies a format with quantised rows. Floats, e4m3, NF4 and FP4, whose
// values are no integers, and IQ1, whose zeros change within a scale, keep the products of the
// float32 class.
constexpr bool TakesInt8(DType type) {
  return IsQuantised(type) && type != DType::kF8 && !grouped::HasFloatTable(type) &&
         !gguf::IsIq1(type);
}

// A panel of 16 rows is a stream: where a type has more than 32 elements to a block [super scales]
// [its 32s], else blocks; a block of 32 k is [scales][values].
constexpr int ValueBytes(DType type) {
  if (type == DType::kQ8_0 || type == DType::kG8 || type == DType::kF8) return 512;
  if (type == DType::kQ6_K) return 384;
  if (HasPairs(type)) return HasThirdBit(type) ? 192 : 128;
  if (type == DType::kQ1_0) return 64;
  return HasFifthBit(type) ? 320 : 256;
}
constexpr int ScaleBytes(DType type) {
  if (type == DType::kG4_128 || gguf::IsTernary(type) || type == DType::kQ1_0) return 0;
  if (grouped::HasFloatTable(type)) return 0;
  if (type == DType::kF4_16) return 128;
  if (grouped::HasZero(type)) return 80;
  if (type == DType::kIQ4_XS || type == DType::kMXFP4 || type == DType::kIQ1_S) return 16;
  if (gguf::IsIq2(type) || gguf::IsIq3(type)) return 16;
  return type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kF8 ? 64 : 32;
}
constexpr int SuperBytes(DType type) {
  if (type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kQ2_K) return 64;
  if (type == DType::kG4_128) return 80;
  if (grouped::HasFloatTable(type)) return 64;
  if (type == DType::kNVFP4) return 0;
  return BlockElements(type) > 32 ? 32 : 0;
}
constexpr int PackedBlockBytes(DType type) { return ScaleBytes(type) + ValueBytes(type); }
// Blocks of 32 k under one super scale; 1 where there is none.
constexpr int SuperBlocks(DType type) { return std::max(1, BlockElements(type) / 32); }
// Where the super scales that hold for a block, and the block itself, begin in their panel.
[[gnu::always_inline]] constexpr int64_t SuperOffset(DType type, int64_t block) {
  if (SuperBytes(type) == 0) return 0;
  return block / SuperBlocks(type) *
         (SuperBytes(type) + SuperBlocks(type) * PackedBlockBytes(type));
}
[[gnu::always_inline]] constexpr int64_t BlockOffset(DType type, int64_t block) {
  if (SuperBytes(type) == 0) return block * PackedBlockBytes(type);
  return SuperOffset(type, block) + SuperBytes(type) +
         block % SuperBlocks(type) * PackedBlockBytes(type);
}

// Calls function(integral_constant<DType, type>), of the first type whose panels look the same.
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
    QUIRE_TYPE(kG4);
    QUIRE_TYPE(kG4_128);
    QUIRE_TYPE(kG8);
    QUIRE_TYPE(kF8);
    QUIRE_TYPE(kQ2_K);
    QUIRE_TYPE(kQ3_K);
    QUIRE_TYPE(kIQ4_NL);
    QUIRE_TYPE(kIQ4_XS);
    QUIRE_TYPE(kMXFP4);
    QUIRE_TYPE(kIQ1_S);
    QUIRE_TYPE(kIQ1_M);
    QUIRE_TYPE(kIQ3_XXS);
    QUIRE_TYPE(kIQ3_S);
    QUIRE_TYPE(kQ1_0);
    QUIRE_TYPE(kQ2_0);
    QUIRE_TYPE(kNVFP4);
    QUIRE_TYPE(kF4_16);
    QUIRE_TYPE(kNF4);
    QUIRE_TYPE(kFP4);
    case DType::kIQ2_XXS:
    case DType::kIQ2_S:
      QUIRE_TYPE(kIQ2_XS);
    case DType::kTQ1_0:
      QUIRE_TYPE(kTQ2_0);
#undef QUIRE_TYPE
  }
}

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

}  // namespace quire::kernels::cpu
