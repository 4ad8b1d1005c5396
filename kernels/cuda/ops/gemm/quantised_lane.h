// The part of a tile of quantised weights that one lane of a warp holds, and how it unpacks it.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/ops/fp8.h"
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

// One lane's part of one fragment's tile.
template <int kBits, QuantForm kForm>
struct LaneQuants {
  using Bytes = QuantBytes<kBits, kForm>;
  static constexpr int kGroups = Bytes::kGroups;

  uint32_t low[kBits == 8 ? 8 : 4];
  uint32_t high[2];
  // Of rows g and g + 8. w = fma(step, q, least): one rounding, as the format's own d · (q −
  // offset) has, because steps times offsets are exact. kGrouped: least is 2^23 + zero.
  float step[2][kGroups];
  float least[2][kGroups];

  QUIRE_DEVICE void Load(const QuantisedWeight& weight, const unsigned char* tile,
                         const unsigned char* super) {
    LoadQuants(tile, Lane());
    const unsigned char* scales = tile + Bytes::kScales;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const Step s = StepAt(weight, scales, super, Lane() / 4 + 8 * half, group);
        step[half][group] = s.step;
        least[half][group] = s.least;
      }
    }
  }

  // The operand of lane `lane`.
  QUIRE_DEVICE void LoadQuants(const unsigned char* tile, int lane) {
    const Vector16 first = Load16(tile + lane * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = first.word[i];
    if constexpr (kBits == 8) {
      const Vector16 second = Load16(tile + 512 + lane * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) low[4 + i] = second.word[i];
    }
    const auto* words = reinterpret_cast<const uint32_t*>(tile + Bytes::kQuants);
    if constexpr (kBits == 5) high[0] = words[lane];
    if constexpr (kBits == 6) {
      high[0] = words[lane];
      high[1] = words[32 + lane];
    }
  }

  struct Step {
    float step;
    float least;
  };

  // Of row 0 … 15 and a group of 64 / kGroups of K.
  QUIRE_DEVICE static Step StepAt(const QuantisedWeight& weight, const unsigned char* scales,
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

  // Element j of step w, in [0, 2^kBits).
  QUIRE_DEVICE uint32_t Quant(int w, int j) const {
    if constexpr (kBits == 8) return low[2 * w + j / 4] >> (8 * (j % 4)) & 255u;
    const int nibble = kForm == QuantForm::kGrouped ? j / 2 + 4 * (j % 2) : j;
    uint32_t q = low[w] >> (4 * nibble) & 15u;
    if constexpr (kBits == 5) q |= (high[0] >> (8 * w + j) & 1u) << 4;
    if constexpr (kBits == 6) q |= (high[w / 2] >> (16 * (w % 2) + 2 * j) & 3u) << 4;
    return q;
  }

  // The codes of step w as numbers, exactly. kGrouped: plus 2^23 and, of 8 bits, 128.
  QUIRE_DEVICE void Numbers(const QuantisedWeight& weight, int w, float (&q)[8]) const {
    if constexpr (kForm == QuantForm::kE4m3) {
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        uint32_t pairs[2];
        WidenFp8(low[2 * w + word], pairs[0], pairs[1]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          q[4 * word + 2 * i] = LowBf16(pairs[i]);
          q[4 * word + 2 * i + 1] = HighBf16(pairs[i]);
        }
      }
    } else if constexpr (kForm == QuantForm::kFloats) {
      LookUpFloats4(weight.float_table, low[w], q);
      LookUpFloats4(weight.float_table, low[w] >> 16, q + 4);
    } else if constexpr (kForm == QuantForm::kTable) {
      const uint32_t entries[2] = {LookUp4(weight.table, low[w]),
                                   LookUp4(weight.table, low[w] >> 16)};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        q[j] = Magic(entries[j / 4] >> (8 * (j % 4)) & 255u) - (kMagic + 128.0f);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        q[j] = Magic(Quant(w, j));
        if constexpr (kForm == QuantForm::kBlocks) q[j] = q[j] - kMagic;
        if constexpr (kForm == QuantForm::kGrouped && kBits == 8) q[j] = q[j] - 128.0f;
      }
    }
  }

  // The fragment of step w, as the tensor core takes it.
  template <bool kHalf>
  QUIRE_DEVICE void Fragment(const QuantisedWeight& weight, int w, uint32_t (&a)[4]) const {
    const int group = kGroups == 4 ? w : w / 2;
    float q[8];
    Numbers(weight, w, q);
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const float s = step[reg % 2][group];
      const float l = least[reg % 2][group];
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float code = q[2 * reg + i];
        value[i] = kForm == QuantForm::kGrouped ? s * (code - l) : Fma(s, code, l);
      }
      a[reg] = kHalf ? PackFiniteF16(value[0], value[1]) : PackBf16(value[0], value[1]);
    }
  }

  // The same fragment where narrow_steps holds: two weights at once, in the type of the product. A
  // code below a power of two's last places is the power plus the code (the magic numbers of
  // Kim et al., "Who Says Elephants Can't Run", 2022); its difference from the power plus the zero
  // is exact, so that a weight has one rounding here, too.
  template <bool kHalf>
  QUIRE_DEVICE void NarrowFragment(int w, uint32_t (&a)[4]) const {
    constexpr uint32_t kPower = kHalf ? 0x64006400u : 0x43004300u;  // 1024, 128
    constexpr float kShift = kHalf ? 1024.0f - kMagic : 128.0f - kMagic;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const float zero = -(least[reg % 2][w / 2] + kShift);
      const float s = step[reg % 2][w / 2];
      const uint32_t code = (low[w] >> (4 * reg) & 0x000f000fu) | kPower;
      const uint32_t difference = SumOfPairs<kHalf>(code, PairOf<kHalf>(zero));
      a[reg] = ProductOfPairs<kHalf>(difference, PairOf<kHalf>(s));
    }
  }
};

}  // namespace quire::kernels::cuda
