// The tile of a GEMM block that multiplies codes of activations with codes of weights, both int8 or
// both e4m3.
#pragma once

#include "kernels/cuda/device/tensor_core8.h"
#include "kernels/cuda/ops/gemm/codes_steps.h"
#include "kernels/cuda/ops/gemm/gemm_block.h"

namespace quire::kernels::cuda {

inline constexpr int kCodeRowBytes = kGemmDepth;

// Of int8, `sum` holds the bits of int32.
template <bool kInt8, int kTokensOfTile, int kStagesOfRing>
struct CodesTile : GemmTile<kTokensOfTile, kStagesOfRing> {
  using Base = GemmTile<kTokensOfTile, kStagesOfRing>;
  using Steps = CodeSteps<Base>;
  static constexpr int kFragments = kGemmRows / 16;
  static constexpr int kWeightBytes = kFragments * kByCodesTileBytes;
  static constexpr int kStageBytes = kWeightBytes + Base::kTokens * kCodeRowBytes;
  static constexpr int kRingBytes = Base::kStages * kStageBytes;
  static constexpr int kSharedBytes =
      (kRingBytes > Base::kOutBytes ? kRingBytes : Base::kOutBytes) + 16;
  static_assert(kSharedBytes <= runtime::kLeastSharedBytes);

  float chunk[kInt8 ? 1 : Base::kRowFragments][kInt8 ? 1 : Base::kOctets][4];  // of 128 of K

  QUIRE_DEVICE void Add(const CodesTile& other) {
    if constexpr (!kInt8) return Base::Add(other);
    ForSums(Steps(), [&](int r, int o, int i, float& s, float) {
      s = FloatOfBits(BitsOfFloat(s) + BitsOfFloat(other.sum[r][o][i]));
    });
  }

  // Rows of 64 bytes; eight rows at one piece meet no bank twice.
  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kCodeRowBytes + (piece ^ (row / 2 & 3)) * 16;
  }

  QUIRE_DEVICE static void FillWeights(const GemmParams& params, int slot, int tile,
                                       const GemmCorner& corner) {
    unsigned char* stage = SharedMemory() + slot * kStageBytes;
    constexpr int kPieces = kByCodesTileBytes / 16;
    for (int i = ThreadIndex(); i < kFragments * kPieces; i += kGemmThreads) {
      const int fragment = i / kPieces;
      const bool inside = corner.row + 16 * fragment < params.n;
      const unsigned char* from = params.quantised.data;
      if (inside) {
        from += (corner.row / 16 + fragment) * params.quantised.fragment_bytes +
                static_cast<int64_t>(tile) * kByCodesTileBytes + i % kPieces * 16;
      }
      AsyncCopy16(stage + 16 * i, from, inside ? 16 : 0);
    }
  }
  QUIRE_DEVICE static void FillTokens(const GemmParams& params, int slot, int tile,
                                      const GemmCorner& corner) {
    unsigned char* stage = SharedMemory() + slot * kStageBytes + kWeightBytes;
    for (int i = ThreadIndex(); i < Base::kTokens * 4; i += kGemmThreads) {
      const int row = i / 4;
      const int k = tile * kGemmDepth + i % 4 * 16;
      const bool inside = corner.token + row < params.m && k < params.k;
      const uint8_t* from = params.codes;
      if (inside) from += static_cast<size_t>(corner.token + row) * params.k + k;
      AsyncCopy16(stage + Swizzled(row, i % 4), from, inside ? 16 : 0);
    }
  }

  QUIRE_DEVICE void Multiply(const GemmParams& params, int slot, int tile) {
    if constexpr (kInt8) {
      MultiplyStage(slot, this->sum);
    } else {
      const int tiles = (params.k + kGemmDepth - 1) / kGemmDepth;
      if (tile % 2 == 0) {
#pragma unroll
        for (auto& row : chunk) {
#pragma unroll
          for (auto& four : row) {
#pragma unroll
            for (float& s : four) s = 0.0f;
          }
        }
      }
      MultiplyStage(slot, chunk);
      if (tile % 2 == 1 || tile + 1 == tiles) AddChunk(params, tile / 2);
    }
  }

  template <class Sums>
  QUIRE_DEVICE void MultiplyStage(int slot, Sums& sums) {
    const unsigned char* stage = SharedMemory() + slot * kStageBytes;
    const unsigned char* tokens = stage + kWeightBytes;
    const int lane = Lane();
    const int first = WarpIndex() % Base::kRowWarps * Base::kRowFragments;
    const int first_token = WarpIndex() / Base::kRowWarps * Base::kOctets * 8;
#pragma unroll(kInt8 ? 2 : 1)  // both whole would need too many registers
    for (int step = 0; step < 2; ++step) {
      uint32_t a[Base::kRowFragments][4];
#pragma unroll
      for (int r = 0; r < Base::kRowFragments; ++r) {
        const Vector16 codes =
            Load16(stage + (first + r) * kByCodesTileBytes + step * 512 + lane * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[r][i] = codes.word[i];
      }
      if constexpr (Base::kOctets == 1) {
        uint32_t b[2];
        LoadMatrices2(b, tokens + Swizzled(first_token + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
        for (int r = 0; r < Base::kRowFragments; ++r) MultiplyCodes(sums[r][0], a[r], b[0], b[1]);
      } else {
#pragma unroll
        for (int o = 0; o + 1 < Base::kOctets; o += 2) {
          uint32_t b[4];
          const int token = first_token + 8 * o + lane / 16 * 8 + lane % 8;
          LoadMatrices4(b, tokens + Swizzled(token, 2 * step + lane / 8 % 2));
#pragma unroll
          for (int r = 0; r < Base::kRowFragments; ++r) {
            MultiplyCodes(sums[r][o], a[r], b[0], b[1]);
            MultiplyCodes(sums[r][o + 1], a[r], b[2], b[3]);
          }
        }
      }
    }
  }

  QUIRE_DEVICE static void MultiplyCodes(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    if constexpr (kInt8) {
      MultiplyInt8(d, a, b0, b1);
    } else {
      MultiplyE4m3(d, a, b0, b1);
    }
  }

  // Calls op(r, o, i, sum, step of x · step of w) for each of a lane's sums.
  template <class Op>
  QUIRE_DEVICE void ForSums(const Steps& steps, const Op& op) {
#pragma unroll
    for (int r = 0; r < Base::kRowFragments; ++r) {
#pragma unroll
      for (int o = 0; o < Base::kOctets; ++o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          op(r, o, i, this->sum[r][o][i], steps.token[o][i % 2] * steps.weight[r][i / 2]);
        }
      }
    }
  }

  QUIRE_DEVICE void AddChunk(const GemmParams& params, int group) {
    if (HasCodeGroups(params)) {
      ForSums(CodeStepsOf<Base>(params, group),
              [&](int r, int o, int i, float& s, float step) { s = Fma(chunk[r][o][i], step, s); });
    } else {
      ForSums(Steps(), [&](int r, int o, int i, float& s, float) { s = s + chunk[r][o][i]; });
    }
  }

  QUIRE_DEVICE void Settle(const GemmParams& params) {
    if constexpr (kInt8) {
      ForSums(CodeStepsOf<Base>(params, 0), [](int, int, int, float& s, float step) {
        s = static_cast<float>(static_cast<int32_t>(BitsOfFloat(s))) * step;
      });
    } else if (!HasCodeGroups(params)) {
      ForSums(CodeStepsOf<Base>(params, 0),
              [](int, int, int, float& s, float step) { s = s * step; });
    }
  }
};

}  // namespace quire::kernels::cuda
