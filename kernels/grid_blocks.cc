#include "kernels/grid_blocks.h"

#include <bit>
#include <cstring>

#include "kernels/grid_tables.h"

namespace quire::kernels::gguf {
namespace {

uint32_t U16(const std::byte* p) { return U8(p) | static_cast<uint32_t>(U8(p + 1)) << 8; }
uint32_t U32(const std::byte* p) { return U16(p) | U16(p + 2) << 16; }

// Eight pairs of bits, or eight bits, as the lowest bits of eight bytes.
uint64_t SpreadPairs(uint64_t pairs) {
  pairs = (pairs | pairs << 24) & 0x000000ff000000ffu;
  pairs = (pairs | pairs << 12) & 0x000f000f000f000fu;
  return (pairs | pairs << 6) & 3 * kEachByte;
}
uint64_t SpreadBits(uint64_t bits) {
  const uint64_t places = bits * kEachByte & 0x8040201008040201u;  // bit i in byte i
  return (places + 127 * kEachByte) >> 7 & kEachByte;
}
// Four nibbles as bytes.
uint64_t SpreadNibbles(uint64_t nibbles) {
  nibbles = (nibbles | nibbles << 8) & 0x00ff00ffu;
  return (nibbles | nibbles << 4) & 0x0f0f0f0fu;
}

// Seven signs are stored; the eighth makes their number even.
uint32_t EightSigns(uint32_t seven) {
  return seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
}

// Eight e of a group: codes of magnitudes, with the signs in bit `place`.
void PutEight(GridGroup& group, int e, uint64_t codes) {
  std::memcpy(group.codes + 8 * e, &codes, 8);
}
void PutPairsOf(GridGroup& group, int e, uint16_t point, uint32_t signs) {
  PutEight(group, e, SpreadPairs(point) | SpreadBits(signs) << 2);
}
void PutNibblesOf(GridGroup& group, int e, uint64_t points, uint32_t signs) {
  const uint64_t codes = SpreadNibbles(points & 0xffffu) | SpreadNibbles(points >> 16) << 32;
  PutEight(group, e, codes | SpreadBits(signs) << 3);
}
void PutScales(GridGroup& group, uint32_t first, uint32_t second) {
  group.scale[0] = static_cast<uint8_t>(first);
  group.scale[1] = static_cast<uint8_t>(second);
}

// [d][8 × ([4 indices][4 × 7 signs, scale])]
void ReadIq2Xxs(const std::byte* block, int group, GridGroup& to) {
  const std::byte* at = block + 2 + 8 * group;
  const uint32_t word = U32(at + 4);
  for (int e = 0; e < 4; ++e) {
    PutPairsOf(to, e, grid::kIq2Xxs[U8(at + e)], EightSigns(word >> (7 * e) & 127u));
  }
  PutScales(to, word >> 28, word >> 28);
}

// [d][32 × (9 bits of index, 7 signs)][8 × 2 scales]
void ReadIq2Xs(const std::byte* block, int group, GridGroup& to) {
  for (int e = 0; e < 4; ++e) {
    const uint32_t word = U16(block + 2 + 8 * group + 2 * e);
    PutPairsOf(to, e, grid::kIq2Xs[word & 511u], EightSigns(word >> 9));
  }
  const uint8_t scales = U8(block + 66 + group);
  PutScales(to, scales & 15u, scales >> 4);
}

// [d][32 low bytes of indices][32 × 8 signs][8 × 4 high pairs of indices][8 × 2 scales]
void ReadIq2S(const std::byte* block, int group, GridGroup& to) {
  const uint32_t high = U8(block + 66 + group);
  for (int e = 0; e < 4; ++e) {
    const std::byte* at = block + 2 + 4 * group + e;
    const uint32_t index = U8(at) | (high >> (2 * e) & 3u) << 8;
    PutPairsOf(to, e, grid::kIq2S[index], U8(at + 32));
  }
  const uint8_t scales = U8(block + 74 + group);
  PutScales(to, scales & 15u, scales >> 4);
}

// [d][64 indices][8 × (4 × 7 signs, scale)]
void ReadIq3Xxs(const std::byte* block, int group, GridGroup& to) {
  const uint32_t word = U32(block + 66 + 4 * group);
  for (int e = 0; e < 4; ++e) {
    const std::byte* at = block + 2 + 8 * group + 2 * e;
    const uint64_t points = grid::kIq3Xxs[U8(at)] | uint64_t{grid::kIq3Xxs[U8(at + 1)]} << 16;
    PutNibblesOf(to, e, points, EightSigns(word >> (7 * e) & 127u));
  }
  PutScales(to, word >> 28, word >> 28);
}

// [d][64 low bytes of indices][8 × 8 high bits of them][32 × 8 signs][4 × 2 scales]
void ReadIq3S(const std::byte* block, int group, GridGroup& to) {
  const uint32_t high = U8(block + 66 + group);
  const auto point = [&](int i) {
    return uint64_t{grid::kIq3S[U8(block + 2 + 8 * group + i) | (high >> i & 1u) << 8]};
  };
  for (int e = 0; e < 4; ++e) {
    PutNibblesOf(to, e, point(2 * e) | point(2 * e + 1) << 16, U8(block + 74 + 4 * group + e));
  }
  const uint32_t scale = U8(block + 106 + group / 2) >> (4 * (group % 2)) & 15u;
  PutScales(to, scale, scale);
}

// [d][32 low bytes of indices][8 × (4 × 3 high bits, scale, zero)]
void ReadIq1S(const std::byte* block, int group, GridGroup& to) {
  const uint32_t word = U16(block + 34 + 2 * group);
  for (int e = 0; e < 4; ++e) {
    const uint32_t index = U8(block + 2 + 4 * group + e) | (word >> (3 * e) & 7u) << 8;
    PutPairsOf(to, e, grid::kIq1[index], 0);
  }
  PutScales(to, word >> 12 & 7u, word >> 12 & 7u);
  to.zeros = (word >> 15) != 0 ? 15 : 0;
}

// [32 low bytes of indices][32 × (3 high bits, zero)][4 × (4 × 3 bits of scale, 4 bits of d)]
constexpr int kIq1MScales = 48;
void ReadIq1M(const std::byte* block, int group, GridGroup& to) {
  for (int e = 0; e < 4; ++e) {
    const uint32_t nibble = U8(block + 32 + 2 * group + e / 2) >> (4 * (e % 2));
    PutPairsOf(to, e, grid::kIq1[U8(block + 4 * group + e) | (nibble & 7u) << 8], 0);
    to.zeros = static_cast<uint8_t>(to.zeros | (nibble >> 3 & 1u) << e);
  }
  const uint32_t scales = U16(block + kIq1MScales + group / 2 * 2) >> (6 * (group % 2));
  PutScales(to, scales & 7u, scales >> 3 & 7u);
}

// Digit `digit` of `count` bytes, each a fraction of 256 in base 3.
void ReadDigits(const std::byte* bytes, int count, int digit, uint8_t* codes) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  for (int i = 0; i < count; ++i) {
    const auto rest = static_cast<uint8_t>(U8(bytes + i) * kPowers[digit]);
    codes[i] = static_cast<uint8_t>(rest * 3 >> 8);
  }
}

// [32 × 5 digits][16 × 5 digits][4 × 4 digits][d]: digit by digit of 32 bytes, then of 16, then
// of 4.
void ReadTq1(const std::byte* block, int group, GridGroup& to) {
  if (group < 5) return ReadDigits(block, 32, group, to.codes);
  const int digit = 2 * (group - 5);
  ReadDigits(block + 32, 16, digit, to.codes);
  if (digit < 4) return ReadDigits(block + 32, 16, digit + 1, to.codes + 16);
  for (int i = 0; i < 4; ++i) ReadDigits(block + 48, 4, i, to.codes + 16 + 4 * i);
}

// [64 pairs][d]
void ReadTq2(const std::byte* block, int group, GridGroup& to) {
  for (int j = 0; j < kGroup; ++j) to.codes[j] = static_cast<uint8_t>(PairAt(block, group, j));
}

// [d][16 × 4 pairs], and [d][16 × 8 bits]
void ReadQ20(const std::byte* block, int group, GridGroup& to) {
  const std::byte* at = block + 2 + 8 * group;
  for (int e = 0; e < 4; ++e) PutEight(to, e, SpreadPairs(U16(at + 2 * e)));
}
void ReadQ10(const std::byte* block, int group, GridGroup& to) {
  for (int e = 0; e < 4; ++e) PutEight(to, e, SpreadBits(U8(block + 2 + 4 * group + e)));
}

}  // namespace

uint16_t GridSuper(DType type, const std::byte* block) {
  if (type == DType::kIQ1_M) {
    uint32_t d = 0;
    for (int i = 0; i < 4; ++i) d |= U16(block + kIq1MScales + 2 * i) >> 12 << (4 * i);
    return static_cast<uint16_t>(d);
  }
  const bool at_end = type == DType::kTQ1_0 || type == DType::kTQ2_0;
  const int place = at_end ? BlockBytes(type) - 2 : 0;
  return static_cast<uint16_t>(U16(block + place));
}

GridGroup ReadGrid(DType type, const std::byte* block, int group) {
  GridGroup to{};
  switch (type) {
    case DType::kIQ1_S:
      ReadIq1S(block, group, to);
      break;
    case DType::kIQ1_M:
      ReadIq1M(block, group, to);
      break;
    case DType::kIQ2_XXS:
      ReadIq2Xxs(block, group, to);
      break;
    case DType::kIQ2_XS:
      ReadIq2Xs(block, group, to);
      break;
    case DType::kIQ2_S:
      ReadIq2S(block, group, to);
      break;
    case DType::kIQ3_XXS:
      ReadIq3Xxs(block, group, to);
      break;
    case DType::kIQ3_S:
      ReadIq3S(block, group, to);
      break;
    case DType::kTQ1_0:
      ReadTq1(block, group, to);
      break;
    case DType::kTQ2_0:
      ReadTq2(block, group, to);
      break;
    case DType::kQ2_0:
      ReadQ20(block, group, to);
      break;
    default:
      ReadQ10(block, group, to);
  }
  return to;
}

}  // namespace quire::kernels::gguf
