// How GGUF's quantised blocks hold their values: one reader for packing and for expanding.
//
// Pure. Values are the unsigned numbers of a block, 32 at a time, before any scale or offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"

namespace quire::kernels::gguf {

inline constexpr int kGroup = 32;     // values that are read at once
inline constexpr int kGroupsOfK = 8;  // in a block of 256

inline uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

// Parts of a simple block (Q4_0, Q4_1, Q5_0, Q5_1): [d]([m])([32 fifth bits])[nibbles].
inline bool HasMinimum(DType type) { return type == DType::kQ4_1 || type == DType::kQ5_1; }
inline bool HasFifthBit(DType type) {
  return type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K;
}

// Nibble j is value j, or 16 + j from the high half.
inline void ReadSimple(DType type, const std::byte* block, uint8_t (&q)[kGroup]) {
  const std::byte* at = block + (HasMinimum(type) ? 4 : 2);
  uint32_t fifth = 0;
  if (HasFifthBit(type)) {
    std::memcpy(&fifth, at, 4);
    at += 4;
  }
  for (int j = 0; j < kGroup; ++j) {
    const uint32_t low = j < 16 ? U8(at + j) & 15u : U8(at + j - 16) >> 4;
    q[j] = static_cast<uint8_t>(low | (fifth >> j & 1u) << 4);
  }
}

// Q4_K: [d, dmin][12 bytes of scales and minima][128 nibbles]; Q5_K has 32 bytes of fifth bits
// before the nibbles. Values of group 0 … 7.
inline void ReadK45(DType type, const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  const bool fifth = HasFifthBit(type);
  const std::byte* nibbles = block + (fifth ? 48 : 16) + 32 * (group / 2);
  for (int j = 0; j < kGroup; ++j) {
    const uint32_t byte = U8(nibbles + j);
    uint32_t value = group % 2 == 0 ? byte & 15u : byte >> 4;
    if (fifth) value |= (U8(block + 16 + j) >> group & 1u) << 4;
    q[j] = static_cast<uint8_t>(value);
  }
}

// Scale and minimum of a group of such a block: six bits each.
inline void ReadK45Scale(const std::byte* block, int group, uint8_t& scale, uint8_t& minimum) {
  const std::byte* packed = block + 4;
  uint32_t s = U8(packed + group) & 63u;
  uint32_t m = U8(packed + group + 4) & 63u;
  if (group >= 4) {
    s = (U8(packed + group + 4) & 15u) | (U8(packed + group - 4) >> 6) << 4;
    m = (U8(packed + group + 4) >> 4) | (U8(packed + group) >> 6) << 4;
  }
  scale = static_cast<uint8_t>(s);
  minimum = static_cast<uint8_t>(m);
}

// Q6_K: [128 low nibbles][64 high pairs][16 int8 scales][d]. Values of group 0 … 7, whose scales
// are kQ6Scales + 2 · group and the next, of sixteen each.
inline constexpr int kQ6Scales = 192;
inline constexpr int kQ6Super = 208;
inline void ReadQ6(const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  const int half = group / 4;  // 128 values each
  const int quarter = group % 4;
  const std::byte* low = block + 64 * half + 32 * (quarter % 2);
  const std::byte* high = block + 128 + 32 * half;
  for (int j = 0; j < kGroup; ++j) {
    const uint32_t byte = U8(low + j);
    const uint32_t pair = U8(high + j) >> (2 * quarter) & 3u;
    q[j] = static_cast<uint8_t>((quarter < 2 ? byte & 15u : byte >> 4) | pair << 4);
  }
}

}  // namespace quire::kernels::gguf
