#include "kernels/encode/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/encode/k_blocks.h"
#include "kernels/encode/scale_search.h"

namespace quire::kernels {
namespace {

constexpr int kSimple = 32;  // values of a block without super-scales

void EncodeQ8(std::span<const float> x, std::byte* out) {
  float largest = 0.0f;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  const float scale = encode::PutHalf(largest / 127.0f, out);
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (size_t i = 0; i < x.size(); ++i) {
    out[2 + i] = static_cast<std::byte>(std::clamp(encode::Nearest(inverse * x[i]), -127, 127));
  }
}

// Codes of four or five bits: nibble j is value j, its high half value 16 + j; fifth bits first.
void PutSimple(const uint8_t (&codes)[kSimple], bool fifth, std::byte* at) {
  if (fifth) {
    uint32_t bits = 0;
    for (int j = 0; j < kSimple; ++j) bits |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
    std::memcpy(at, &bits, 4);
    at += 4;
  }
  for (int j = 0; j < 16; ++j) {
    at[j] = static_cast<std::byte>((codes[j] & 15) | (codes[16 + j] & 15) << 4);
  }
}

// Q4_0 (half = 8) and Q5_0 (half = 16).
void EncodeSigned(std::span<const float> x, int half, std::byte* out) {
  const float scale = encode::PutHalf(encode::BestScale(x, half), out);
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  uint8_t codes[kSimple] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] =
        static_cast<uint8_t>(std::clamp(encode::Nearest(inverse * x[i]), -half, half - 1) + half);
  }
  PutSimple(codes, half == 16, out + 2);
}

void EncodeQ51(std::span<const float> x, std::byte* out) {
  const encode::Range range = encode::BestRange(x, 31);
  const float scale = encode::PutHalf(range.scale, out);
  const float low = encode::PutHalf(-range.minimum, out + 2);
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  uint8_t codes[kSimple] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] = static_cast<uint8_t>(std::clamp(encode::Nearest(inverse * (x[i] - low)), 0, 31));
  }
  PutSimple(codes, true, out + 4);
}

void EncodeBlock(DType type, std::span<const float> x, std::byte* out) {
  switch (type) {
    case DType::kQ8_0:
      return EncodeQ8(x, out);
    case DType::kQ4_0:
      return EncodeSigned(x, 8, out);
    case DType::kQ5_0:
      return EncodeSigned(x, 16, out);
    case DType::kQ5_1:
      return EncodeQ51(x, out);
    case DType::kQ6_K:
      return encode::EncodeQ6(x, out);
    default:
      return encode::EncodeK45(type, x, out);
  }
}

}  // namespace

void EncodeRow(DType type, std::span<const float> values, std::byte* out) {
  const auto block = static_cast<size_t>(BlockElements(type));
  for (size_t at = 0; at < values.size(); at += block) {
    EncodeBlock(type, values.subspan(at, block), out);
    out += BlockBytes(type);
  }
}

}  // namespace quire::kernels
