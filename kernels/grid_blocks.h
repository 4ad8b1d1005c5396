// How GGUF's types of one to three bits hold their values: IQ1, IQ2 and IQ3 as indices into grids
// of points, TQ1_0, TQ2_0 and Q2_0 as numbers of three states (or four), Q1_0 as signs.
//
// A weight is d · (2 s + 1) · GridUnit(type) · GridValue, with a scale s for 16 or 32 values. No
// product of it rounds in float32, so their order changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gguf_blocks.h"
#include "kernels/tensor.h"

namespace quire::kernels::gguf {

constexpr bool IsGrid(DType type) {
  return IsIq1(type) || IsIq2(type) || IsIq3(type) || IsTernary(type) || type == DType::kQ1_0;
}

constexpr float GridUnit(DType type) {
  if (IsIq1(type) || IsIq2(type)) return 0.125f;
  return type == DType::kIQ3_XXS ? 0.25f : 1.0f;
}

// 32 values of a block: codes as TableOf(type) reads them, or of IQ1 0 … 2.
struct GridGroup {
  uint8_t codes[kGroup];
  uint8_t scale[2];  // s of each sixteen
  uint8_t zeros;     // IQ1: bit e is set where the zero of eight e is 9 instead of 7
};

// The bits of the float16 d of a block.
uint16_t GridSuper(DType type, const std::byte* block);

// Group 0 … of a block, of BlockElements(type) / kGroup.
GridGroup ReadGrid(DType type, const std::byte* block, int group);

inline int GridValue(DType type, const GridGroup& group, int j) {
  if (HasTable(type)) return TableOf(type)[group.codes[j]];
  return 8 * group.codes[j] - ((group.zeros >> (j / 8) & 1) != 0 ? 9 : 7);
}

// A group's scales as panels hold them: both in the nibbles of a byte. Of IQ1, byte 0 or 1 for each
// sixteen: bits 2 … 4 are the scale, bits 1 and 5 say which eights have the zero 9.
inline uint8_t GridScaleByte(DType type, const GridGroup& group, int i) {
  if (!IsIq1(type)) return static_cast<uint8_t>(group.scale[0] | group.scale[1] << 4);
  const int zeros = group.zeros >> (2 * i);
  return static_cast<uint8_t>(group.scale[i] << 2 | (zeros & 1) << 1 | (zeros & 2) << 4);
}

}  // namespace quire::kernels::gguf
