// The normal form of quantised checkpoints: runs of 32 codes along K under a float32 scale.
//
// Readers of checkpoint formats write these blocks, backends pack or expand them. Pure.
//   kG4      [scale f32][zero i8][16 bytes of nibbles]      w = (q − zero) · scale, q = 0 … 15
//   kG4_128  [scale f32][zero i8][4 × 16 bytes of nibbles]  the same for groups of 128
//   kG8      [scale f32][zero i8][32 codes i8]              w = (q − zero) · scale
//   kF8      [scale f32][32 bytes of e4m3]                  w = e4m3(q) · scale
// Value j of 32 is the low nibble of byte j, or the high one of byte j − 16. A byte of e4m3 is
// never NaN (0x7f, 0xff): the writer of a block refuses it. The difference is exact, so that a
// weight has one rounding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"

namespace quire::kernels::grouped {

inline constexpr int kRun = 32;  // codes that are read at once

constexpr bool IsGrouped(DType type) {
  return type == DType::kG4 || type == DType::kG4_128 || type == DType::kG8 || type == DType::kF8;
}
constexpr bool HasNibbles(DType type) { return type == DType::kG4 || type == DType::kG4_128; }
constexpr bool HasZero(DType type) { return IsGrouped(type) && type != DType::kF8; }
// Bytes of a block before its codes.
constexpr int HeadBytes(DType type) { return HasZero(type) ? 5 : 4; }
constexpr int RunBytes(DType type) { return HasNibbles(type) ? 16 : 32; }

inline float Scale(const std::byte* block) {
  float scale = 0.0f;
  std::memcpy(&scale, block, 4);
  return scale;
}
inline int Zero(const std::byte* block) { return static_cast<int8_t>(block[4]); }

inline void PutHead(DType type, float scale, int zero, std::byte* block) {
  std::memcpy(block, &scale, 4);
  if (HasZero(type)) block[4] = static_cast<std::byte>(zero);
}

// Codes of run 0 … 3 of a block of nibbles.
inline void ReadNibbles(const std::byte* block, int run, uint8_t (&q)[kRun]) {
  const std::byte* at = block + 5 + 16 * run;
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<uint8_t>(at[j]) & 15;
    q[16 + j] = static_cast<uint8_t>(at[j]) >> 4;
  }
}
inline void PutNibbles(std::byte* block, int run, const uint8_t (&q)[kRun]) {
  std::byte* at = block + 5 + 16 * run;
  for (int j = 0; j < 16; ++j) at[j] = static_cast<std::byte>(q[j] | q[16 + j] << 4);
}

// e4m3 without its NaN: four bits of exponent over three of mantissa, exponent 0 is subnormal.
inline float E4m3(uint8_t code) {
  const uint32_t rest = static_cast<uint32_t>(code & 127u) << 20;
  return std::bit_cast<float>(static_cast<uint32_t>(code & 128u) << 24 | rest) * 0x1p120f;
}
constexpr bool IsE4m3Nan(uint8_t code) { return (code & 127u) == 127u; }

// The values of a whole block, BlockElements(type) of them.
inline void Expand(DType type, const std::byte* block, float* out) {
  const float scale = Scale(block);
  for (int run = 0; run < BlockElements(type) / kRun; ++run) {
    uint8_t q[kRun];
    if (HasNibbles(type)) {
      ReadNibbles(block, run, q);
    } else {
      std::memcpy(q, block + HeadBytes(type), kRun);
    }
    for (const uint8_t code : q) {
      const int integer = HasNibbles(type) ? code : static_cast<int8_t>(code);
      *out++ =
          scale * (type == DType::kF8 ? E4m3(code) : static_cast<float>(integer - Zero(block)));
    }
  }
}

}  // namespace quire::kernels::grouped
