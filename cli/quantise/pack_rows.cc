#include "cli/quantise/pack_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/encode/scale_search.h"
#include "kernels/kv_fp8.h"

namespace quire::cli {
namespace {

using kernels::encode::Nearest;

// Stores a bfloat16 and returns the number that a reader will find.
float PutBrain(float value, std::byte* at) {
  const uint16_t bits = kernels::cpu::FloatToBFloat(value);
  std::memcpy(at, &bits, 2);
  return kernels::cpu::BFloatToFloat(bits);
}

float Largest(std::span<const float> row) {
  float largest = 0.0f;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  return largest;
}

float InverseOf(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// Codes are unsigned, eight above their meaning, eight to a word from its lowest bits.
void PackInt4(std::span<const float> row, PackedRow out, std::span<float> read_back) {
  std::fill(out.codes.begin(), out.codes.end(), std::byte{0});
  for (size_t at = 0; at < row.size(); at += kInt4Group) {
    const std::span<const float> group = row.subspan(at, kInt4Group);
    const float scale =
        PutBrain(kernels::encode::BestScale(group, 8, kernels::encode::Sign::kPositive),
                 out.scales.data() + 2 * (at / kInt4Group));
    const float inverse = InverseOf(scale);
    for (size_t j = 0; j < group.size(); ++j) {
      const int code = std::clamp(Nearest(inverse * group[j]), -8, 7);
      read_back[at + j] = scale * static_cast<float>(code);
      out.codes[(at + j) / 2] |= static_cast<std::byte>((code + 8) << (4 * (j % 2)));
    }
  }
}

// `above`: what is added to a code, 128 where codes are unsigned.
void PackInt8(std::span<const float> row, int above, PackedRow out, std::span<float> read_back) {
  const float scale = PutBrain(Largest(row) / 127.0f, out.scales.data());
  const float inverse = InverseOf(scale);
  for (size_t i = 0; i < row.size(); ++i) {
    const int code = std::clamp(Nearest(inverse * row[i]), -128, 127);
    read_back[i] = scale * static_cast<float>(code);
    out.codes[i] = static_cast<std::byte>(code + above);
  }
}

void PackFp8(std::span<const float> row, PackedRow out, std::span<float> read_back) {
  const float scale = PutBrain(Largest(row) / kernels::kFp8Max, out.scales.data());
  const float inverse = InverseOf(scale);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint8_t code = kernels::ToFp8(inverse * row[i]);
    read_back[i] = scale * kernels::FromFp8(code);
    out.codes[i] = static_cast<std::byte>(code);
  }
}

}  // namespace

int64_t CodeBytes(Packing packing, int64_t cols) {
  return packing == Packing::kInt4Groups ? cols / 2 : cols;
}

int64_t ScaleCount(Packing packing, int64_t cols) {
  return packing == Packing::kInt4Groups ? cols / kInt4Group : 1;
}

void PackRow(Packing packing, std::span<const float> row, PackedRow out,
             std::span<float> read_back) {
  switch (packing) {
    case Packing::kInt4Groups:
      return PackInt4(row, out, read_back);
    case Packing::kInt8Packed:
      return PackInt8(row, 128, out, read_back);
    case Packing::kInt8Rows:
      return PackInt8(row, 0, out, read_back);
    case Packing::kFp8Rows:
      return PackFp8(row, out, read_back);
  }
}

}  // namespace quire::cli
