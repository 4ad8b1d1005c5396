// The part of a tile of quantised weights that one lane of a warp holds, and how it unpacks it.
#pragma once

#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/ops/gemm/quantised_steps.h"

namespace quire::kernels::cuda {

// One lane's part of one fragment's tile.
template <int kBits, QuantForm kForm>
struct LaneQuants {
  using Bytes = QuantBytes<kBits, kForm>;
  static constexpr int kGroups = Bytes::kGroups;

  uint32_t low[kBits == 8 ? 8 : 4];
  uint32_t high[2];
  // Of rows g and g + 8, by StepAt. w = fma(step, q, least): one rounding, as the format's own d ·
  // (q − offset) has, because steps times offsets are exact. kGrouped: least is 2^23 + zero.
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
        const QuantStep s =
            StepAt<kBits, kForm>(weight, scales, super, Lane() / 4 + 8 * half, group);
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
