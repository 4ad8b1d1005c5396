#include "kernels/encode/k_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/encode/scale_search.h"
#include "kernels/gguf_blocks.h"

namespace quire::kernels::encode {
namespace {

constexpr int kGroups = gguf::kGroupsOfK;
constexpr int kMostScale = 63;  // six bits
constexpr int kSixteens = 16;   // groups of a block of Q6_K

void OrByte(std::byte& at, int bits) { at |= static_cast<std::byte>(bits); }

// Scale and minimum of a group in the twelve bytes: the inverse of gguf::ReadK45Scale.
void PutScale(std::byte* block, int group, int scale, int minimum) {
  std::byte* packed = block + 4;
  if (group < 4) {
    OrByte(packed[group], scale);
    OrByte(packed[group + 4], minimum);
    return;
  }
  OrByte(packed[group + 4], (scale & 15) | (minimum & 15) << 4);
  OrByte(packed[group - 4], (scale >> 4) << 6);
  OrByte(packed[group], (minimum >> 4) << 6);
}

// The integer of six bits that stands for `value` where `largest` is the block's largest.
int SixBits(float value, float largest) {
  if (largest < kLeastScale) return 0;
  return std::min(kMostScale, Nearest(value * (static_cast<float>(kMostScale) / largest)));
}

void PutCodes(bool fifth, std::byte* block, int group, const uint8_t (&codes)[gguf::kGroup]) {
  std::byte* nibbles = block + (fifth ? 48 : 16) + 32 * (group / 2);
  for (int j = 0; j < gguf::kGroup; ++j) {
    OrByte(nibbles[j], (codes[j] & 15) << (4 * (group % 2)));
    if (fifth) OrByte(block[16 + j], (codes[j] >> 4) << group);
  }
}

// A value of Q6_K: a nibble in the low half, two bits in the high one.
void PutQ6Code(std::byte* block, int index, int code) {
  const int group = index / gguf::kGroup, j = index % gguf::kGroup;
  const int half = group / 4, quarter = group % 4;
  OrByte(block[64 * half + 32 * (quarter % 2) + j], (code & 15) << (4 * (quarter / 2)));
  OrByte(block[128 + 32 * half + j], (code >> 4) << (2 * quarter));
}

}  // namespace

float PutHalf(float value, std::byte* at) {
  const uint16_t bits = cpu::FloatToHalf(value);
  std::memcpy(at, &bits, 2);
  return cpu::HalfToFloat(bits);
}

void EncodeK45(DType type, std::span<const float> x, std::byte* out) {
  const bool fifth = gguf::HasFifthBit(type);
  const int most = fifth ? 31 : 15;
  std::memset(out, 0, static_cast<size_t>(BlockBytes(type)));
  Range ranges[kGroups];
  Range largest;
  for (size_t group = 0; group < kGroups; ++group) {
    ranges[group] = BestRange(x.subspan(group * gguf::kGroup, gguf::kGroup), most);
    largest.scale = std::max(largest.scale, ranges[group].scale);
    largest.minimum = std::max(largest.minimum, ranges[group].minimum);
  }
  const float d = PutHalf(largest.scale / kMostScale, out);
  const float d_minimum = PutHalf(largest.minimum / kMostScale, out + 2);
  for (int group = 0; group < kGroups; ++group) {
    const int scale = SixBits(ranges[group].scale, largest.scale);
    const int minimum = SixBits(ranges[group].minimum, largest.minimum);
    PutScale(out, group, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float inverse = step == 0.0f ? 0.0f : 1.0f / step;
    const float least = d_minimum * static_cast<float>(minimum);
    uint8_t codes[gguf::kGroup];
    for (int j = 0; j < gguf::kGroup; ++j) {
      const float value = x[static_cast<size_t>(gguf::kGroup * group + j)];
      codes[j] = static_cast<uint8_t>(std::clamp(Nearest(inverse * (value + least)), 0, most));
    }
    PutCodes(fifth, out, group, codes);
  }
}

void EncodeQ6(std::span<const float> x, std::byte* out) {
  constexpr int kHalf = 32;
  constexpr size_t kGroup = 16;
  std::memset(out, 0, static_cast<size_t>(BlockBytes(DType::kQ6_K)));
  float scales[kSixteens];
  float largest = 0.0f;
  for (size_t group = 0; group < kSixteens; ++group) {
    scales[group] = BestScale(x.subspan(group * kGroup, kGroup), kHalf);
    if (std::abs(scales[group]) > std::abs(largest)) largest = scales[group];
  }
  // The largest scale gets −128, which has no partner of the other sign.
  const float d = PutHalf(largest / -128.0f, out + gguf::kQ6Super);
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  for (int group = 0; group < kSixteens; ++group) {
    const int scale = std::clamp(Nearest(inverse * scales[group]), -128, 127);
    out[gguf::kQ6Scales + group] = static_cast<std::byte>(scale);
    const float step = d * static_cast<float>(scale);
    const float steps = step == 0.0f ? 0.0f : 1.0f / step;
    for (int j = 0; j < static_cast<int>(kGroup); ++j) {
      const int index = static_cast<int>(kGroup) * group + j;
      const float value = x[static_cast<size_t>(index)];
      PutQ6Code(out, index, std::clamp(Nearest(steps * value), -kHalf, kHalf - 1) + kHalf);
    }
  }
}

}  // namespace quire::kernels::encode
