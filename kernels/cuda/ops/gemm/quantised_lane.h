// The part of a tile of quantised weights that one lane of a warp holds, and how it unpacks it.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/ops/gemm/quantised.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

// Sizes of one fragment's tile.
template <int kBits>
struct QuantBytes {
  static constexpr int kQuants = kBits == 8 ? 1024 : 512;
  static constexpr int kHigh = kBits == 5 ? 128 : kBits == 6 ? 256 : 0;
  static constexpr int kScales = kQuants + kHigh;  // where they begin
  // Of the formats of so many bits, what most have: 4 and 5 bits may have minima, 8 have no super
  // scales.
  static constexpr int kMost = kScales + (kBits <= 5 ? 128 : 64);
  static constexpr int kSuper = kBits == 8 ? 0 : kBits == 6 ? 32 : 64;
};

QUIRE_DEVICE float HalfAt(const unsigned char* halves, int i) {
  return ToFloat(F16{reinterpret_cast<const uint16_t*>(halves)[i]});
}

// One lane's part of one fragment's tile.
template <int kBits>
struct LaneQuants {
  using Bytes = QuantBytes<kBits>;
  static constexpr int kGroups = kBits == 6 ? 4 : 2;

  uint32_t low[kBits == 8 ? 8 : 4];
  uint32_t high[2];
  // w = fma(step, q, least), of rows g and g + 8: one rounding, as the format's own d · (q −
  // offset) has, because steps times offsets are exact.
  float step[2][kGroups];
  float least[2][kGroups];

  QUIRE_DEVICE void Load(const QuantisedWeight& weight, const unsigned char* tile,
                         const unsigned char* super) {
    LoadQuants(tile, Lane());
    LoadScales(weight, tile + Bytes::kScales, super);
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

  QUIRE_DEVICE void LoadScales(const QuantisedWeight& weight, const unsigned char* scales,
                               const unsigned char* super) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Lane() / 4 + 8 * half;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int at = group * 16 + row;
        float& s = step[half][group];
        float& m = least[half][group];
        if constexpr (kBits == 6) {
          s = HalfAt(super, row) * static_cast<float>(static_cast<signed char>(scales[at]));
          m = -weight.offset * s;
        } else if (kBits == 8 || weight.scales == QuantScales::kD) {
          s = HalfAt(scales, at);
          m = -weight.offset * s;
        } else if (weight.scales == QuantScales::kDM) {
          s = HalfAt(scales, at);
          m = HalfAt(scales + 64, at);
        } else {
          s = HalfAt(super, row) * static_cast<float>(scales[at]);
          m = -(HalfAt(super, 16 + row) * static_cast<float>(scales[32 + at]));
        }
      }
    }
  }

  // Element j of step w, in [0, 2^kBits).
  QUIRE_DEVICE uint32_t Quant(int w, int j) const {
    if constexpr (kBits == 8) return low[2 * w + j / 4] >> (8 * (j % 4)) & 255u;
    uint32_t q = low[w] >> (4 * j) & 15u;
    if constexpr (kBits == 5) q |= (high[0] >> (8 * w + j) & 1u) << 4;
    if constexpr (kBits == 6) q |= (high[w / 2] >> (16 * (w % 2) + 2 * j) & 3u) << 4;
    return q;
  }

  // The fragment of step w, as the tensor core takes it.
  template <bool kHalf>
  QUIRE_DEVICE void Fragment(int w, uint32_t (&a)[4]) const {
    const int group = kBits == 6 ? w : w / 2;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // 2^23 + q, exactly.
        const float q = FloatOfBits(0x4b000000u | Quant(w, 2 * reg + i)) - 8388608.0f;
        value[i] = Fma(step[reg % 2][group], q, least[reg % 2][group]);
      }
      a[reg] = kHalf ? PackFiniteF16(value[0], value[1]) : PackBf16(value[0], value[1]);
    }
  }
};

}  // namespace quire::kernels::cuda
