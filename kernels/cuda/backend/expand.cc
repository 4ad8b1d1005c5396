#include "kernels/cuda/backend/expand.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace quire::kernels::cuda {
namespace {

uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

uint16_t Word(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

float Half(const std::byte* p) {
  const uint16_t bits = Word(p);
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {
    return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  }
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float small = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
}

// Q4_0, Q4_1, Q5_0, Q5_1: nibble j is value j, or 16 + j from the high half.
void ExpandSimple(DType type, const std::byte* block, float* out) {
  const bool has_minimum = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool has_high = type == DType::kQ5_0 || type == DType::kQ5_1;
  const float d = Half(block);
  const float minimum = has_minimum ? Half(block + 2) : 0.0f;
  const std::byte* at = block + (has_minimum ? 4 : 2);
  uint32_t high = 0;
  if (has_high) {
    std::memcpy(&high, at, 4);
    at += 4;
  }
  const int offset = has_minimum ? 0 : (has_high ? 16 : 8);
  for (int j = 0; j < 32; ++j) {
    const int low = j < 16 ? U8(at + j) & 15 : U8(at + j - 16) >> 4;
    const int q = (low | static_cast<int>((high >> j & 1u) << 4)) - offset;
    const float value = static_cast<float>(q);
    out[j] = has_minimum ? std::fma(d, value, minimum) : d * value;
  }
}

void ExpandQ8(const std::byte* block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) {
    out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  }
}

// Scale and minimum of one of the eight groups of a Q4_K or Q5_K block: six bits each in 12 bytes.
void ReadScale(const std::byte* packed, int index, int& scale, int& minimum) {
  if (index < 4) {
    scale = U8(packed + index) & 63;
    minimum = U8(packed + index + 4) & 63;
    return;
  }
  scale = (U8(packed + index + 4) & 15) | (U8(packed + index - 4) >> 6) << 4;
  minimum = (U8(packed + index + 4) >> 4) | (U8(packed + index) >> 6) << 4;
}

void ExpandK45(DType type, const std::byte* block, float* out) {
  const bool has_high = type == DType::kQ5_K;
  const float d = Half(block);
  const float d_minimum = Half(block + 2);
  const std::byte* high = block + 16;
  const std::byte* nibbles = block + (has_high ? 48 : 16);
  for (int group = 0; group < 8; ++group) {
    int scale = 0;
    int minimum = 0;
    ReadScale(block + 4, group, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float least = d_minimum * static_cast<float>(minimum);
    for (int j = 0; j < 32; ++j) {
      const int byte = U8(nibbles + 32 * (group / 2) + j);
      int q = group % 2 == 0 ? byte & 15 : byte >> 4;
      if (has_high) q |= (U8(high + j) >> group & 1) << 4;
      out[32 * group + j] = std::fma(step, static_cast<float>(q), -least);
    }
  }
}

// [128 low nibbles][64 high pairs][16 int8 scales][d].
void ExpandQ6(const std::byte* block, float* out) {
  const float d = Half(block + 208);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128;
    const int within = j % 128;
    const int byte = U8(block + half * 64 + within % 64);
    const int low = within < 64 ? byte & 15 : byte >> 4;
    const int high = U8(block + 128 + half * 32 + within % 32) >> (within / 32 * 2) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(block[192 + j / 16]));
    out[j] = step * static_cast<float>((low | high << 4) - 32);
  }
}

void ExpandBlock(DType type, const std::byte* block, float* out) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, block, 4);
      return;
    case DType::kF16:
      *out = Half(block);
      return;
    case DType::kBF16:
      *out = std::bit_cast<float>(static_cast<uint32_t>(Word(block)) << 16);
      return;
    case DType::kQ8_0:
      return ExpandQ8(block, out);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return ExpandK45(type, block, out);
    case DType::kQ6_K:
      return ExpandQ6(block, out);
    default:
      return ExpandSimple(type, block, out);
  }
}

}  // namespace

uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void ExpandRow(const WeightSource& source, int64_t row, std::span<float> out) {
  const int elements = BlockElements(source.type);
  const std::byte* at = source.Row(row);
  for (int64_t k = 0; k < source.cols; k += elements) {
    ExpandBlock(source.type, at, out.data() + k);
    at += BlockBytes(source.type);
  }
}

void ExpandRows(const WeightSource& source, int64_t begin, std::span<uint16_t> out) {
  const auto cols = static_cast<size_t>(source.cols);
  std::vector<float> row(cols);
  for (size_t at = 0; at < out.size(); at += cols, ++begin) {
    if (source.type == DType::kBF16) {
      std::memcpy(out.data() + at, source.Row(begin), 2 * cols);
      continue;
    }
    ExpandRow(source, begin, row);
    for (size_t k = 0; k < cols; ++k) out[at + k] = RoundToBf16(row[k]);
  }
}

}  // namespace quire::kernels::cuda
