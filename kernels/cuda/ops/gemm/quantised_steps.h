// Sizes of the tiles of quantised weights, the steps and zeros of their groups, and look-ups of
// codes.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/ops/gemm/quantised.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

// Of the formats of a form, what most have: 4 and 5 bits of kBlocks may have minima, kGrouped has
// zeros, kTable floats for 16.
constexpr int MostScaleBytes(QuantForm form, int bits) {
  switch (form) {
    case QuantForm::kBlocks:
      return bits >= 6 ? 64 : 128;
    case QuantForm::kGrouped:
      return 160;
    case QuantForm::kTable:
      return 256;
    case QuantForm::kFloats:
      return 64;
    default:
      return 128;
  }
}

// Sizes of one fragment's tile.
template <int kBits, QuantForm kForm>
struct QuantBytes {
  static constexpr bool kBlocks = kForm == QuantForm::kBlocks;
  static constexpr int kQuants = kBits == 8 ? 1024 : 512;
  static constexpr int kScales = ScalesAt(kBits);  // where they begin
  static constexpr int kMost = kScales + MostScaleBytes(kForm, kBits);
  static constexpr int kSuper = kForm == QuantForm::kTable ? 64
                                : !kBlocks || kBits == 8   ? 0
                                : kBits == 6               ? 32
                                                           : 64;
  // Groups of a tile that a lane keeps steps of.
  static constexpr int kGroups = kForm == QuantForm::kTable || (kBlocks && kBits == 6) ? 4 : 2;
};

QUIRE_DEVICE float HalfAt(const unsigned char* halves, int i) {
  return ToFloat(F16{reinterpret_cast<const uint16_t*>(halves)[i]});
}
QUIRE_DEVICE float FloatAt(const unsigned char* floats, int i) {
  return reinterpret_cast<const float*>(floats)[i];
}
QUIRE_DEVICE float SignedAt(const unsigned char* bytes, int i) {
  return static_cast<float>(static_cast<signed char>(bytes[i]));
}
// 2^(exponent − 128); the two smallest are subnormal.
QUIRE_DEVICE float PowerAt(const unsigned char* exponents, int i) {
  const uint32_t exponent = exponents[i];
  return FloatOfBits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}
// A byte of e4m3 without its sign, where float32 has exponent and mantissa: too small by 2^120.
QUIRE_DEVICE float E4m3At(const unsigned char* bytes, int i) {
  return FloatOfBits(static_cast<uint32_t>(bytes[i]) << 20) * 0x1p120f;
}
// 2^23 + q, exactly.
QUIRE_DEVICE float Magic(uint32_t q) { return FloatOfBits(0x4b000000u | q); }
inline constexpr float kMagic = 8388608.0f;

// The entries of a table that the four low nibbles of `codes` name.
QUIRE_DEVICE uint32_t LookUp4(const uint32_t (&table)[4], uint32_t codes) {
  const uint32_t low = BytePermute(table[0], table[1], codes & 0x7777u);
  const uint32_t high = BytePermute(table[2], table[3], codes & 0x7777u);
  return BytePermute(low, high, (codes >> 1 & 0x4444u) | 0x3210u);
}

// The floats that they name.
QUIRE_DEVICE void LookUpFloats4(const uint32_t (&table)[4][4], uint32_t codes, float* out) {
  uint32_t plane[4];
#pragma unroll
  for (int byte = 0; byte < 4; ++byte) plane[byte] = LookUp4(table[byte], codes);
  // Lower and upper halves of the first two floats, then of the others.
  const uint32_t half[2][2] = {
      {BytePermute(plane[0], plane[1], 0x5140u), BytePermute(plane[2], plane[3], 0x5140u)},
      {BytePermute(plane[0], plane[1], 0x7362u), BytePermute(plane[2], plane[3], 0x7362u)}};
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    out[2 * pair] = FloatOfBits(BytePermute(half[pair][0], half[pair][1], 0x5410u));
    out[2 * pair + 1] = FloatOfBits(BytePermute(half[pair][0], half[pair][1], 0x7632u));
  }
}

// What a lane keeps of a group: w = fma(step, q, least); of kGrouped least is 2^23 + zero.
struct QuantStep {
  float step;
  float least;
};

// Of row 0 … 15 and a group of 64 / kGroups of K.
template <int kBits, QuantForm kForm>
QUIRE_DEVICE QuantStep StepAt(const QuantisedWeight& weight, const unsigned char* scales,
                              const unsigned char* super, int row, int group) {
  if constexpr (kForm == QuantForm::kGrouped) {
    const int groups = weight.group_elements == 64 ? 1 : 2;
    const int at = (groups == 1 ? 0 : group) * 16 + row;
    return {FloatAt(scales, at), kMagic + SignedAt(scales + 64 * groups, at)};
  } else if constexpr (kForm == QuantForm::kFloats) {
    return {FloatAt(scales, row), -0.0f};
  } else if constexpr (kForm == QuantForm::kE4m3) {
    return {FloatAt(scales, group * 16 + row), -0.0f};
  } else if constexpr (kForm == QuantForm::kTable) {
    const int at = (weight.group_elements == 16 ? group : group / 2) * 16 + row;
    switch (weight.scales) {
      case QuantScales::kSigned:
        return {HalfAt(super, row) * weight.unit * SignedAt(scales, at), -0.0f};
      case QuantScales::kSuper:
        return {HalfAt(super, row) * static_cast<float>(scales[at]),
                -(HalfAt(super, 16 + row) * static_cast<float>(scales[64 + at]))};
      case QuantScales::kPower:
        return {PowerAt(scales, at), -0.0f};
      case QuantScales::kFloat:
        return {FloatAt(scales, at) * weight.unit, -0.0f};
      case QuantScales::kByte:
        return {E4m3At(scales, at) * weight.unit, -0.0f};
      default:
        return {HalfAt(scales, at), -0.0f};
    }
  } else {
    const int at = group * 16 + row;
    if constexpr (kBits == 6) {
      const float s = HalfAt(super, row) * SignedAt(scales, at);
      return {s, -weight.offset * s};
    }
    if (kBits == 8 || weight.scales == QuantScales::kD) {
      const float s = HalfAt(scales, at);
      return {s, -weight.offset * s};
    }
    if (weight.scales == QuantScales::kDM) return {HalfAt(scales, at), HalfAt(scales + 64, at)};
    return {HalfAt(super, row) * static_cast<float>(scales[at]),
            -(HalfAt(super, 16 + row) * static_cast<float>(scales[32 + at]))};
  }
}

}  // namespace quire::kernels::cuda
