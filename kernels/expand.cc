#include "kernels/expand.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/gguf_blocks.h"
#include "kernels/grid_blocks.h"
#include "kernels/grouped_blocks.h"

namespace quire::kernels {
namespace {

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

void ExpandSimple(DType type, const std::byte* block, float* out) {
  const bool has_minimum = gguf::HasMinimum(type);
  const float d = Half(block);
  const float minimum = has_minimum ? Half(block + 2) : 0.0f;
  const int offset = has_minimum ? 0 : (gguf::HasFifthBit(type) ? 16 : 8);
  uint8_t q[gguf::kGroup];
  gguf::ReadSimple(type, block, q);
  for (int j = 0; j < gguf::kGroup; ++j) {
    const auto value = static_cast<float>(q[j] - offset);
    out[j] = has_minimum ? std::fma(d, value, minimum) : d * value;
  }
}

void ExpandQ8(const std::byte* block, float* out) {
  const float d = Half(block);
  for (int j = 0; j < 32; ++j) {
    out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  }
}

void ExpandK45(DType type, const std::byte* block, float* out) {
  const float d = Half(block);
  const float d_minimum = Half(block + 2);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t scale = 0;
    uint8_t minimum = 0;
    gguf::ReadK45Scale(block, group, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float least = d_minimum * static_cast<float>(minimum);
    uint8_t q[gguf::kGroup];
    gguf::ReadK45(type, block, group, q);
    for (const uint8_t value : q) *out++ = std::fma(step, static_cast<float>(value), -least);
  }
}

void ExpandQ6(const std::byte* block, float* out) {
  const float d = Half(block + gguf::kQ6Super);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t q[gguf::kGroup];
    gguf::ReadQ6(block, group, q);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const auto scale = static_cast<int8_t>(block[gguf::kQ6Scales + 2 * group + j / 16]);
      *out++ = d * static_cast<float>(scale) * static_cast<float>(q[j] - 32);
    }
  }
}

void ExpandQ2(const std::byte* block, float* out) {
  const float d = Half(block + gguf::kQ2Super);
  const float d_minimum = Half(block + gguf::kQ2Super + 2);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t q[gguf::kGroup];
    gguf::ReadQ2(block, group, q);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const uint8_t both = gguf::U8(block + 2 * group + j / 16);
      const float step = d * static_cast<float>(both & 15);
      const float least = d_minimum * static_cast<float>(both >> 4);
      *out++ = std::fma(step, static_cast<float>(q[j]), -least);
    }
  }
}

void ExpandQ3(const std::byte* block, float* out) {
  const float d = Half(block + gguf::kQ3Super);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t q[gguf::kGroup];
    gguf::ReadQ3(block, group, q);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const auto scale = static_cast<float>(gguf::ReadQ3Scale(block, 2 * group + j / 16));
      *out++ = d * scale * static_cast<float>(q[j] - 4);
    }
  }
}

void ExpandTable(DType type, const std::byte* block, float* out) {
  for (int group = 0; group < BlockElements(type) / gguf::kGroup; ++group) {
    float scale = type == DType::kMXFP4 ? std::ldexp(1.0f, gguf::U8(block) - 128) : Half(block);
    if (type == DType::kIQ4_XS) scale *= static_cast<float>(gguf::ReadIq4Scale(block, group));
    uint8_t q[gguf::kGroup];
    gguf::ReadTableCodes(type, block, group, q);
    for (const uint8_t code : q) *out++ = scale * static_cast<float>(gguf::TableOf(type)[code]);
  }
}

// Every product is exact.
void ExpandNvfp4(const std::byte* block, float* out) {
  for (int group = 0; group < BlockElements(DType::kNVFP4) / gguf::kGroup; ++group) {
    uint8_t q[gguf::kGroup];
    gguf::ReadNvfp4Codes(block, group, q);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const float scale = 0.5f * grouped::E4m3(gguf::Nvfp4Scale(block, 2 * group + j / 16));
      *out++ = scale * static_cast<float>(gguf::kE2m1Table[q[j]]);
    }
  }
}

// Every product is exact but that with an infinite or a NaN d.
void ExpandGrid(DType type, const std::byte* block, float* out) {
  const uint16_t bits = gguf::GridSuper(type, block);
  const float d = Half(reinterpret_cast<const std::byte*>(&bits)) * gguf::GridUnit(type);
  for (int group = 0; group < BlockElements(type) / gguf::kGroup; ++group) {
    const gguf::GridGroup g = gguf::ReadGrid(type, block, group);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const float step = d * static_cast<float>(2 * g.scale[j / 16] + 1);
      *out++ = step * static_cast<float>(gguf::GridValue(type, g, j));
    }
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
    case DType::kQ2_K:
      return ExpandQ2(block, out);
    case DType::kQ3_K:
      return ExpandQ3(block, out);
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return ExpandTable(type, block, out);
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0:
    case DType::kQ2_0:
      return ExpandGrid(type, block, out);
    case DType::kNVFP4:
      return ExpandNvfp4(block, out);
    case DType::kG4:
    case DType::kG4_128:
    case DType::kG8:
    case DType::kF8:
    case DType::kF4_16:
    case DType::kNF4:
    case DType::kFP4:
      return grouped::Expand(type, block, out);
    default:
      return ExpandSimple(type, block, out);
  }
}

}  // namespace

void ExpandRow(const WeightSource& source, int64_t row, std::span<float> out) {
  if (source.order != nullptr) {
    WeightSource in_order = source;
    in_order.order = nullptr;
    std::vector<float> values(static_cast<size_t>(source.cols));
    ExpandRow(in_order, row, values);
    for (size_t j = 0; j < values.size(); ++j)
      out[static_cast<size_t>(source.order[j])] = values[j];
    return;
  }
  const int elements = BlockElements(source.type);
  const std::byte* at = source.Row(row);
  for (int64_t k = 0; k < source.cols; k += elements) {
    ExpandBlock(source.type, at, out.data() + k);
    at += BlockBytes(source.type);
  }
}

}  // namespace quire::kernels
