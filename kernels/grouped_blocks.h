// The normal form of quantised checkpoints: runs of codes along K under float32 scales.
//
// Readers of checkpoint formats write these blocks, backends pack or expand them. Pure.
//   kG4      [scale f32][zero i8][16 bytes of nibbles]      w = (q − zero) · scale, q = 0 … 15
//   kG4_128  [scale f32][zero i8][4 × 16 bytes of nibbles]  the same for groups of 128
//   kG8      [scale f32][zero i8][32 codes i8]              w = (q − zero) · scale
//   kF8      [scale f32][32 bytes of e4m3]                  w = e4m3(q) · scale
//   kF4_16   [2 × scale f32][16 bytes of nibbles]           w = e2m1(q) · scale of its 16
//   kNF4     [scale f32][2 × 16 bytes of nibbles]           w = kNf4Values[q] · scale
//   kFP4     the same                                       w = kFp4Values[q] · scale
// Value j of 32 is the low nibble of byte j, or the high one of byte j − 16. A byte of e4m3 is
// never NaN (0x7f, 0xff): the writer of a block refuses it; the scale of kF8 is below
// kF8ScaleLimit. The difference is exact, so that a weight has one rounding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/gguf_blocks.h"

namespace quire::kernels::grouped {

inline constexpr int kRun = 32;  // codes that are read at once

constexpr bool IsGrouped(DType type) {
  return type == DType::kG4 || type == DType::kG4_128 || type == DType::kG8 || type == DType::kF8 ||
         type == DType::kF4_16 || type == DType::kNF4 || type == DType::kFP4;
}
// Whether codes are places in sixteen floats of bitsandbytes.
constexpr bool HasFloatTable(DType type) { return type == DType::kNF4 || type == DType::kFP4; }
constexpr bool HasZero(DType type) {
  return type == DType::kG4 || type == DType::kG4_128 || type == DType::kG8;
}
constexpr bool HasNibbles(DType type) {
  return IsGrouped(type) && type != DType::kG8 && type != DType::kF8;
}
// Whether a zero of each block is taken off its nibbles.
constexpr bool HasNibbleZero(DType type) { return HasNibbles(type) && HasZero(type); }
// Bytes of a block before its codes.
constexpr int HeadBytes(DType type) {
  if (type == DType::kMXFP4) return 1;
  if (type == DType::kF4_16) return 8;
  return HasZero(type) ? 5 : 4;
}
constexpr int RunBytes(DType type) { return HasNibbles(type) ? 16 : 32; }

// What the codes of bitsandbytes mean, as its own tables have it.
inline constexpr float kNf4Values[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};
inline constexpr float kFp4Values[16] = {
    0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};
constexpr const float (&FloatTableOf(DType type))[16] {
  return type == DType::kNF4 ? kNf4Values : kFp4Values;
}

// Scale 0, or of kF4_16 0 or 1.
inline float Scale(const std::byte* block, int index = 0) {
  float scale = 0.0f;
  std::memcpy(&scale, block + 4 * index, 4);
  return scale;
}
inline int Zero(const std::byte* block) { return static_cast<int8_t>(block[4]); }

inline void PutHead(DType type, float scale, int zero, std::byte* block) {
  std::memcpy(block, &scale, 4);
  if (HasZero(type)) block[4] = static_cast<std::byte>(zero);
}

// Codes of run 0 … 3 of a block of nibbles, of MXFP4 too.
inline void ReadNibbles(DType type, const std::byte* block, int run, uint8_t (&q)[kRun]) {
  const std::byte* at = block + HeadBytes(type) + 16 * run;
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<uint8_t>(at[j]) & 15;
    q[16 + j] = static_cast<uint8_t>(at[j]) >> 4;
  }
}
inline void PutNibbles(DType type, std::byte* block, int run, const uint8_t (&q)[kRun]) {
  std::byte* at = block + HeadBytes(type) + 16 * run;
  for (int j = 0; j < 16; ++j) at[j] = static_cast<std::byte>(q[j] | q[16 + j] << 4);
}

// e4m3 without its NaN: four bits of exponent over three of mantissa, exponent 0 is subnormal.
inline float E4m3(uint8_t code) {
  const uint32_t rest = static_cast<uint32_t>(code & 127u) << 20;
  return std::bit_cast<float>(static_cast<uint32_t>(code & 128u) << 24 | rest) * 0x1p120f;
}
// Kernels multiply a scale by 2^120 before its codes: it is to stay finite.
inline constexpr float kF8ScaleLimit = 256.0f;
constexpr bool IsE4m3Nan(uint8_t code) { return (code & 127u) == 127u; }

// What code `q` of a block means before its scale.
inline float ValueOf(DType type, const std::byte* block, uint8_t q) {
  if (HasFloatTable(type)) return FloatTableOf(type)[q & 15u];
  if (type == DType::kF4_16) return 0.5f * static_cast<float>(gguf::kE2m1Table[q & 15u]);
  if (type == DType::kF8) return E4m3(q);
  const int integer = HasNibbles(type) ? q : static_cast<int8_t>(q);
  return static_cast<float>(integer - Zero(block));
}

// The values of a whole block, BlockElements(type) of them.
inline void Expand(DType type, const std::byte* block, float* out) {
  for (int run = 0; run < BlockElements(type) / kRun; ++run) {
    uint8_t q[kRun];
    if (HasNibbles(type)) {
      ReadNibbles(type, block, run, q);
    } else {
      std::memcpy(q, block + HeadBytes(type), kRun);
    }
    for (int j = 0; j < kRun; ++j) {
      const float scale = Scale(block, type == DType::kF4_16 ? j / 16 : 0);
      *out++ = scale * ValueOf(type, block, q[j]);
    }
  }
}

}  // namespace quire::kernels::grouped
