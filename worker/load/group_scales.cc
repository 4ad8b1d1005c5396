#include "worker/load/group_scales.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/grouped_blocks.h"

namespace quire::load {
namespace {

using kernels::DType;
namespace grouped = kernels::grouped;

// The exponent and the mantissa move to their places; the difference of the biases is a factor.
float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  if ((bits & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  return std::bit_cast<float>(sign | magnitude) * 0x1p112f;
}

float E4m3OrNan(uint8_t code) {
  return grouped::IsE4m3Nan(code) ? std::nanf("") : grouped::E4m3(code);
}

// 255 is the NaN of exponents.
float PowerOfTwo(uint8_t code) {
  return code == 255 ? std::nanf("") : std::ldexp(1.0f, code - 127);
}

}  // namespace

float FloatElement(const Tensor& tensor, int64_t i) {
  if (*tensor.type == DType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
  if (*tensor.type == DType::kF16) return HalfToFloat(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float GroupScales::At(int64_t place) const {
  if (kind == Kind::kFloat) {
    const float stored = FloatElement(*tensor, place);
    return divisor == 1.0f ? stored * factor : stored * factor / divisor;
  }
  const auto code = static_cast<uint8_t>(tensor->bytes[static_cast<size_t>(place)]);
  if (kind == Kind::kE4m3) return E4m3OrNan(code) * factor / divisor;
  if (kind == Kind::kExponent) return PowerOfTwo(code);
  return FloatElement(*codebook, code) * FloatElement(*outer, place / outer_group) + offset;
}

}  // namespace quire::load
