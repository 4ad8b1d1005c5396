#include "tests/kernels/int8_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/gguf_blocks.h"
#include "kernels/grid_blocks.h"
#include "kernels/grouped_blocks.h"

namespace quire::kernels::test {
namespace {

int Signed(std::byte byte) { return static_cast<int8_t>(byte); }

// 32 k of one row of weights.
struct CodeBlock {
  std::array<int, 32> code{};  // offset and zero taken off
  float d = 0.0f;
  float step = 1.0f;  // the second level of scales of 32 k
  float minimum = 0.0f;
  bool has_minimum = false;
  bool halves = false;
  bool own = false;  // each half has a scale that is a float
  float own_scale[2] = {};
  int half[2] = {};
  int half_minimum[2] = {};  // Q2_K
  float dmin = 0.0f;
};

float HalfAt(const std::byte* p) {
  uint16_t bits = 0;
  std::memcpy(&bits, p, 2);
  return static_cast<float>(HalfValue(bits));
}

void Take(const uint8_t (&q)[32], int offset, CodeBlock& block) {
  for (int i = 0; i < 32; ++i) block.code[i] = q[i] - offset;
}

// IQ2, IQ3 and the ternary types.
void ReadGrid(DType type, const std::byte* at, int group, CodeBlock& block) {
  const gguf::GridGroup g = gguf::ReadGrid(type, at, group);
  for (int i = 0; i < 32; ++i) block.code[i] = gguf::GridValue(type, g, i);
  block.d = static_cast<float>(HalfValue(gguf::GridSuper(type, at))) * gguf::GridUnit(type);
  block.halves = gguf::IsIq2(type);
  if (!block.halves) block.step = static_cast<float>(2 * g.scale[0] + 1);
  for (int h = 0; h < 2; ++h) block.half[h] = 2 * g.scale[h] + 1;
}

void ReadSuper(DType type, const std::byte* at, int group, CodeBlock& block) {
  uint8_t q[32];
  if (type == DType::kQ4_K || type == DType::kQ5_K) {
    gguf::ReadK45(type, at, group, q);
    Take(q, 0, block);
    uint8_t scale = 0, minimum = 0;
    gguf::ReadK45Scale(at, group, scale, minimum);
    block.d = HalfAt(at);
    block.step = scale;
    block.has_minimum = true;
    block.minimum = -(HalfAt(at + 2) * static_cast<float>(minimum));
    return;
  }
  if (type == DType::kIQ4_XS) {
    gguf::ReadTableCodes(type, at, group, q);
    for (int i = 0; i < 32; ++i) block.code[i] = int{gguf::TableOf(type)[q[i]]};
    block.d = HalfAt(at);
    block.step = static_cast<float>(gguf::ReadIq4Scale(at, group));
    return;
  }
  block.halves = true;
  for (int h = 0; h < 2; ++h) {
    const int index = 2 * group + h;
    if (type == DType::kQ6_K) {
      block.half[h] = Signed(at[gguf::kQ6Scales + index]);
    } else if (type == DType::kQ3_K) {
      block.half[h] = gguf::ReadQ3Scale(at, index);
    } else {
      block.half[h] = gguf::U8(at + index) & 15;
      block.half_minimum[h] = gguf::U8(at + index) >> 4;
    }
  }
  if (type == DType::kQ6_K) {
    gguf::ReadQ6(at, group, q);
    block.d = HalfAt(at + gguf::kQ6Super);
    Take(q, 32, block);
  } else if (type == DType::kQ3_K) {
    gguf::ReadQ3(at, group, q);
    block.d = HalfAt(at + gguf::kQ3Super);
    Take(q, 4, block);
  } else {
    gguf::ReadQ2(at, group, q);
    block.d = HalfAt(at + gguf::kQ2Super);
    block.dmin = HalfAt(at + gguf::kQ2Super + 2);
    Take(q, 0, block);
  }
}

// NVFP4 and F4_16.
void ReadOwnScales(DType type, const std::byte* at, int group, CodeBlock& block) {
  uint8_t q[32];
  if (type == DType::kNVFP4) {
    gguf::ReadNvfp4Codes(at, group, q);
  } else {
    grouped::ReadNibbles(type, at, 0, q);
  }
  for (int i = 0; i < 32; ++i) block.code[i] = int{gguf::kE2m1Table[q[i] & 15u]};
  block.own = true;
  for (int h = 0; h < 2; ++h) {
    block.own_scale[h] =
        0.5f * (type == DType::kNVFP4 ? grouped::E4m3(gguf::Nvfp4Scale(at, 2 * group + h))
                                      : grouped::Scale(at, h));
  }
}

void ReadGrouped(DType type, const std::byte* at, int run, CodeBlock& block) {
  block.d = grouped::Scale(at);
  const int zero = grouped::Zero(at);
  uint8_t q[32];
  if (grouped::HasNibbles(type)) {
    grouped::ReadNibbles(type, at, run, q);
    return Take(q, zero, block);
  }
  for (int i = 0; i < 32; ++i) {
    block.code[i] = static_cast<int8_t>(at[grouped::HeadBytes(type) + i]) - zero;
  }
}

CodeBlock ReadBlock(const WeightSource& source, int64_t row, int64_t index) {
  const DType type = source.type;
  const int groups = BlockElements(type) / 32;
  const std::byte* at = source.Row(row) + index / groups * BlockBytes(type);
  const int group = static_cast<int>(index % groups);
  CodeBlock block;
  uint8_t q[32];
  if (type == DType::kNVFP4 || type == DType::kF4_16) {
    ReadOwnScales(type, at, group, block);
  } else if (grouped::IsGrouped(type)) {
    ReadGrouped(type, at, group, block);
  } else if (gguf::IsGrid(type)) {
    ReadGrid(type, at, group, block);
  } else if (groups == 8) {
    ReadSuper(type, at, group, block);
  } else if (type == DType::kQ8_0) {
    block.d = HalfAt(at);
    for (int i = 0; i < 32; ++i) block.code[i] = Signed(at[2 + i]);
  } else if (gguf::HasTable(type)) {
    gguf::ReadTableCodes(type, at, 0, q);
    for (int i = 0; i < 32; ++i) block.code[i] = int{gguf::TableOf(type)[q[i]]};
    block.d = type == DType::kMXFP4 ? std::ldexp(1.0f, gguf::U8(at) - 128) : HalfAt(at);
  } else {
    gguf::ReadSimple(type, at, q);
    Take(q, type == DType::kQ4_0 ? 8 : type == DType::kQ5_0 ? 16 : 0, block);
    block.d = HalfAt(at);
    block.has_minimum = gguf::HasMinimum(type);
    if (block.has_minimum) block.minimum = HalfAt(at + 2);
  }
  return block;
}

struct InputBlock {
  std::array<int, 32> q{};
  float dx = 0.0f;
};

// The 32 values from `begin` on, under the scale of the `width` values that they are among.
InputBlock ReadInput(std::span<const float> x, size_t begin, size_t width) {
  float largest = 0.0f;
  const size_t from = begin / width * width;
  for (size_t i = from; i < std::min(x.size(), from + width); ++i) {
    largest = std::max(largest, std::fabs(x[i]));
  }
  InputBlock block;
  const float inverse = 127.0f / largest;
  if (!(inverse <= std::numeric_limits<float>::max())) return block;
  block.dx = largest / 127.0f;
  for (size_t i = 0; i < 32; ++i) {
    block.q[i] = static_cast<int>(std::nearbyint(x[begin + i] * inverse));
  }
  return block;
}

float AddProduct(float a, float b, float acc, Fault fault) {
  if (fault != Fault::kSeparateRounding) return std::fma(a, b, acc);
  const volatile float product = a * b;
  return acc + product;
}

float AddOwnHalves(float acc, const CodeBlock& w, const InputBlock& x, Fault fault) {
  for (int h = 0; h < 2; ++h) {
    int sum = 0;
    for (int i = 16 * h; i < 16 * h + 16; ++i) sum += w.code[i] * x.q[i];
    const float value = static_cast<float>(sum);
    acc = fault == Fault::kScaleBeforeInput ? std::fma(value * w.own_scale[h], x.dx, acc)
                                            : AddProduct(value, w.own_scale[h] * x.dx, acc, fault);
  }
  return acc;
}

float AddBlock(float acc, const CodeBlock& w, const InputBlock& x, Fault fault) {
  if (w.own) return AddOwnHalves(acc, w, x, fault);
  int sum = 0, sum_q = 0, minima = 0;
  for (int i = 0; i < 32; ++i) {
    sum += w.code[i] * x.q[i] * (w.halves ? w.half[i / 16] : 1);
    sum_q += x.q[i];
    minima += w.half_minimum[i / 16] * x.q[i];
  }
  const float value = static_cast<float>(sum);
  const float input_sum = x.dx * static_cast<float>(sum_q);
  if (w.has_minimum && fault == Fault::kMinimumFirst) {
    acc = std::fma(w.minimum, input_sum, acc);
  }
  const float scale = w.d * w.step;
  if (fault == Fault::kScaleBeforeInput) {
    acc = std::fma(value * scale, x.dx, acc);
  } else if (fault == Fault::kScalesUnrounded) {
    acc = std::fma(value, w.d * (w.step * x.dx), acc);
  } else {
    acc = AddProduct(value, scale * x.dx, acc, fault);
  }
  if (w.has_minimum && fault != Fault::kMinimumFirst) {
    acc = AddProduct(w.minimum, input_sum, acc, fault);
  }
  if (w.dmin != 0.0f) acc = AddProduct(static_cast<float>(-minima), w.dmin * x.dx, acc, fault);
  return acc;
}

}  // namespace

std::vector<Fault> FaultsOf(DType type) {
  std::vector<Fault> faults = {Fault::kBlocksBackwards, Fault::kSeparateRounding,
                               Fault::kChunkedChains, Fault::kWiderInputBlocks};
  // A power of two rounds nothing.
  if (type != DType::kMXFP4) faults.push_back(Fault::kScaleBeforeInput);
  const bool two_levels =
      type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kIQ4_XS || gguf::IsIq3(type);
  if (two_levels) faults.push_back(Fault::kScalesUnrounded);
  if (type == DType::kQ4_K || type == DType::kQ5_K || gguf::HasMinimum(type)) {
    faults.push_back(Fault::kMinimumFirst);
  }
  return faults;
}

std::vector<float> Int8Model::Run(std::span<const float> x, Fault fault) const {
  std::vector<float> y;
  const size_t blocks = x.size() / 32;
  const size_t width = fault == Fault::kWiderInputBlocks ? 128 : 32;
  for (const WeightSource& part : weight_.parts) {
    for (int64_t row = 0; row < part.rows; ++row) {
      float acc = 0.0f;
      float whole = 0.0f;  // of chunked chains
      for (size_t i = 0; i < blocks; ++i) {
        const size_t block = fault == Fault::kBlocksBackwards ? blocks - 1 - i : i;
        acc = AddBlock(acc, ReadBlock(part, row, static_cast<int64_t>(block)),
                       ReadInput(x, 32 * block, width), fault);
        if (fault == Fault::kChunkedChains && i % 4 == 3) whole += std::exchange(acc, 0.0f);
      }
      y.push_back(whole + acc);
    }
  }
  return y;
}

double QuantisedValue(std::span<const float> x, int64_t k) {
  const InputBlock block = ReadInput(x, static_cast<size_t>(k / 32 * 32), 32);
  return double{block.dx} * block.q[k % 32];
}

}  // namespace quire::kernels::test
