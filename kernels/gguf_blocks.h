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

// Eight bytes at once: loading is faster than a byte at a time by as much.
inline uint64_t U64(const std::byte* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, 8);
  return word;
}
inline constexpr uint64_t kEachByte = 0x0101010101010101u;

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
  for (int j = 0; j < kGroup; j += 8) {
    const uint64_t values = U64(at + j % 16) >> (j < 16 ? 0 : 4) & 15 * kEachByte;
    std::memcpy(q + j, &values, 8);
  }
  if (fifth == 0) return;
  for (int j = 0; j < kGroup; ++j) q[j] = static_cast<uint8_t>(q[j] | (fifth >> j & 1u) << 4);
}

// Q4_K: [d, dmin][12 bytes of scales and minima][128 nibbles]; Q5_K has 32 bytes of fifth bits
// before the nibbles. Values of group 0 … 7.
inline void ReadK45(DType type, const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  const bool fifth = HasFifthBit(type);
  const std::byte* nibbles = block + (fifth ? 48 : 16) + 32 * (group / 2);
  for (int j = 0; j < kGroup; j += 8) {
    uint64_t values = U64(nibbles + j) >> (4 * (group % 2)) & 15 * kEachByte;
    if (fifth) values |= (U64(block + 16 + j) >> group & kEachByte) << 4;
    std::memcpy(q + j, &values, 8);
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
  for (int j = 0; j < kGroup; j += 8) {
    const uint64_t nibbles = U64(low + j) >> (4 * (quarter / 2)) & 15 * kEachByte;
    const uint64_t pairs = U64(high + j) >> (2 * quarter) & 3 * kEachByte;
    const uint64_t values = nibbles | pairs << 4;
    std::memcpy(q + j, &values, 8);
  }
}

// Pairs of bits: each 32 bytes hold bits 2 j of group 4 · half + j.
inline uint32_t PairAt(const std::byte* pairs, int group, int j) {
  return U8(pairs + 32 * (group / 4) + j) >> (2 * (group % 4)) & 3u;
}

// Q2_K: [16 × (scale, minimum) of four bits][64 pairs][d][dmin]. Values of group 0 … 7, whose
// scales are 2 · group and the next, of sixteen values each.
inline constexpr int kQ2Super = 80;
inline void ReadQ2(const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  for (int j = 0; j < kGroup; ++j) q[j] = static_cast<uint8_t>(PairAt(block + 16, group, j));
}

// Q3_K: [32 third bits][64 pairs][12 bytes of scales][d]. Values 0 … 7, four above their meaning.
inline constexpr int kQ3Super = 108;
inline void ReadQ3(const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  for (int j = 0; j < kGroup; ++j) {
    const uint32_t third = U8(block + j) >> group & 1u;
    q[j] = static_cast<uint8_t>(PairAt(block + 32, group, j) | third << 2);
  }
}
// Scale 0 … 15 of it: six bits, less 32.
inline int ReadQ3Scale(const std::byte* block, int index) {
  const std::byte* packed = block + 96;
  const uint32_t low = U8(packed + index % 8) >> (4 * (index / 8)) & 15u;
  const uint32_t high = U8(packed + 8 + index % 4) >> (2 * (index / 4)) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

// What the codes of the types with a table mean. Numbers of e2m1 are doubled.
inline constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kE2m1Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// IQ2: places of magnitudes, and bit 2 is the sign. IQ3: the same with bit 3. Ternary: one less.
// Q1_0: signs.
inline constexpr int8_t kIq2Table[16] = {8, 25, 43, 0, -8, -25, -43};
inline constexpr int8_t kIq3XxsTable[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                            -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3STable[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                          -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr int8_t kTernaryTable[16] = {-1, 0, 1, 2};
inline constexpr int8_t kSignTable[16] = {-1, 1};

constexpr bool IsIq1(DType type) { return type == DType::kIQ1_S || type == DType::kIQ1_M; }
constexpr bool IsIq2(DType type) {
  return type == DType::kIQ2_XXS || type == DType::kIQ2_XS || type == DType::kIQ2_S;
}
constexpr bool IsIq3(DType type) { return type == DType::kIQ3_XXS || type == DType::kIQ3_S; }
constexpr bool IsTernary(DType type) {
  return type == DType::kTQ1_0 || type == DType::kTQ2_0 || type == DType::kQ2_0;
}

// Numbers of e2m1, in files of GGUF and in the normal form of checkpoints (grouped_blocks.h).
constexpr bool IsE2m1(DType type) {
  return type == DType::kMXFP4 || type == DType::kNVFP4 || type == DType::kF4_16;
}

constexpr bool HasTable(DType type) {
  return type == DType::kIQ4_NL || type == DType::kIQ4_XS || IsE2m1(type) || IsIq2(type) ||
         IsIq3(type) || IsTernary(type) || type == DType::kQ1_0;
}
constexpr const int8_t (&TableOf(DType type))[16] {
  if (IsE2m1(type)) return kE2m1Table;
  if (IsIq2(type)) return kIq2Table;
  if (type == DType::kIQ3_XXS) return kIq3XxsTable;
  if (type == DType::kIQ3_S) return kIq3STable;
  if (type == DType::kQ1_0) return kSignTable;
  return IsTernary(type) ? kTernaryTable : kIq4Table;
}

// IQ4_NL: [d][nibbles]; IQ4_XS: [d][8 high pairs of scales][8 low nibbles of them][8 × nibbles];
// MXFP4: [exponent][nibbles]. Codes of a group.
inline void ReadTableCodes(DType type, const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  const int head = type == DType::kIQ4_XS ? 8 : type == DType::kIQ4_NL ? 2 : 1;
  const std::byte* nibbles = block + head + 16 * group;
  for (int j = 0; j < 16; ++j) {
    q[j] = U8(nibbles + j) & 15;
    q[16 + j] = U8(nibbles + j) >> 4;
  }
}

// NVFP4: [4 scales of e4m3][4 × 8 bytes of nibbles], the low ones first. Codes of a group, whose
// scales are 2 · group and the next, of sixteen each.
inline void ReadNvfp4Codes(const std::byte* block, int group, uint8_t (&q)[kGroup]) {
  const std::byte* nibbles = block + 4 + 16 * group;
  for (int j = 0; j < 16; ++j) {
    const int at = j / 8 * 16 + j % 8;
    q[at] = U8(nibbles + j) & 15;
    q[at + 8] = U8(nibbles + j) >> 4;
  }
}
// A scale's magnitude; 127 means zero, and the sign nothing.
inline uint8_t Nvfp4Scale(const std::byte* block, int index) {
  const uint8_t code = U8(block + index);
  return code == 127 ? 0 : code & 127;
}

// The scale of a group of IQ4_XS: six bits, less 32.
inline int ReadIq4Scale(const std::byte* block, int group) {
  const uint32_t low = U8(block + 4 + group / 2) >> (4 * (group % 2)) & 15u;
  const uint32_t high = U8(block + 2 + group / 4) >> (2 * (group % 4)) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

}  // namespace quire::kernels::gguf
