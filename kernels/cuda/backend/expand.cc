#include "kernels/cuda/backend/expand.h"

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/expand.h"

namespace quire::kernels::cuda {

uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t RoundToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7bffu);
  if (magnitude < 0x38800000u) {  // below 2^−14: steps of 2^−24, which is the last place of 1/2
    const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return static_cast<uint16_t>(sign | (steps - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  return static_cast<uint16_t>(sign | (rounded - (112u << 10)));
}

void ExpandRows(const WeightSource& source, int64_t begin, bool half, std::span<uint16_t> out) {
  const auto cols = static_cast<size_t>(source.cols);
  std::vector<float> row(cols);
  for (size_t at = 0; at < out.size(); at += cols, ++begin) {
    if (source.type == (half ? DType::kF16 : DType::kBF16)) {
      std::memcpy(out.data() + at, source.Row(begin), 2 * cols);
      continue;
    }
    ExpandRow(source, begin, row);
    for (size_t k = 0; k < cols; ++k) out[at + k] = half ? RoundToF16(row[k]) : RoundToBf16(row[k]);
  }
}

}  // namespace quire::kernels::cuda
