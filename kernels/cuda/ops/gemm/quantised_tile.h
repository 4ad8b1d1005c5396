// The tile of a GEMM block whose weights are quantised: its ring holds them in their form in
// memory, and a lane unpacks its own to bfloat16 or float16 just before it multiplies.
#pragma once

#include "kernels/cuda/ops/gemm/gemm_block.h"
#include "kernels/cuda/ops/gemm/quantised_lane.h"

namespace quire::kernels::cuda {

inline constexpr int kSuperSlots = 4;  // a ring of at most 8 stages reaches into three

template <int kBits, QuantForm kForm, int kTokensOfTile, int kStagesOfRing>
struct QuantisedTile : GemmTile<kTokensOfTile, kStagesOfRing> {
  using Base = GemmTile<kTokensOfTile, kStagesOfRing>;
  using Bytes = QuantBytes<kBits, kForm>;
  static constexpr int kFragments = kGemmRows / 16;
  static constexpr int kWeightBytes = kFragments * Bytes::kMost;
  static constexpr int kStageBytes = kWeightBytes + Base::kTokens * kGemmRowBytes;
  static constexpr int kSuperAt = Base::kStages * kStageBytes;
  static constexpr int kRingBytes = kSuperAt + kSuperSlots * kFragments * Bytes::kSuper;
  static constexpr int kSharedBytes =
      (kRingBytes > Base::kOutBytes ? kRingBytes : Base::kOutBytes) + 16;
  static_assert(kSharedBytes <= runtime::kLeastSharedBytes);

  // A part of every fragment's stream; the parts of the block's fragments are end to end in shared
  // memory.
  struct Part {
    int64_t at;
    int bytes;
  };

  QUIRE_DEVICE static void CopyStreams(const GemmParams& params, unsigned char* to, int row,
                                       const Part& part) {
    const int pieces = part.bytes / 16;
    for (int i = ThreadIndex(); i < kFragments * pieces; i += kGemmThreads) {
      const int fragment = i / pieces;
      const int piece = i % pieces;
      const bool inside = row + 16 * fragment < params.n;
      const unsigned char* from = params.quantised.data;
      if (inside) {
        from += (row / 16 + fragment) * params.quantised.fragment_bytes + part.at + 16 * piece;
      }
      AsyncCopy16(to + 16 * i, from, inside ? 16 : 0);
    }
  }

  QUIRE_DEVICE static void FillWeights(const GemmParams& params, int slot, int tile,
                                       const GemmCorner& corner) {
    const QuantisedWeight& weight = params.quantised;
    unsigned char* stage = SharedMemory() + slot * kStageBytes;
    int64_t at = static_cast<int64_t>(tile) * weight.tile_bytes;
    if (weight.super_bytes > 0) {
      at += static_cast<int64_t>(tile / 4) * weight.super_bytes;
      if (tile % 4 == 0 || tile == corner.tile) {
        const int64_t super = at - tile % 4 * weight.tile_bytes;
        CopyStreams(params, SharedMemory() + SuperSlot(tile), corner.row,
                    {super, weight.super_bytes});
      }
      at += weight.super_bytes;
    }
    CopyStreams(params, stage, corner.row, {at, weight.tile_bytes});
  }
  QUIRE_DEVICE static void FillTokens(const GemmParams& params, int slot, int tile,
                                      const GemmCorner& corner) {
    unsigned char* stage = SharedMemory() + slot * kStageBytes;
    Base::template Copy<Base::kTokens>(stage + kWeightBytes, {params.x, params.m, params.k},
                                       corner.token, tile * kGemmDepth);
  }

  QUIRE_DEVICE static int SuperSlot(int tile) {
    return kSuperAt + tile / 4 % kSuperSlots * kFragments * Bytes::kSuper;
  }

  QUIRE_DEVICE void Multiply(const GemmParams& params, int slot, int tile) {
    constexpr bool kMayBeNarrow = kForm == QuantForm::kGrouped && kBits == 4;
    if (kMayBeNarrow && params.quantised.narrow_steps) {
      if (params.half) {
        MultiplyStage<true, kMayBeNarrow>(params, slot, tile);
      } else {
        MultiplyStage<false, kMayBeNarrow>(params, slot, tile);
      }
    } else if (params.half) {
      MultiplyStage<true, false>(params, slot, tile);
    } else {
      MultiplyStage<false, false>(params, slot, tile);
    }
  }

  template <bool kHalf, bool kNarrow>
  QUIRE_DEVICE void MultiplyStage(const GemmParams& params, int slot, int tile) {
    const unsigned char* stage = SharedMemory() + slot * kStageBytes;
    const int first = WarpIndex() % Base::kRowWarps * Base::kRowFragments;
    LaneQuants<kBits, kForm> quants[Base::kRowFragments];
#pragma unroll
    for (int r = 0; r < Base::kRowFragments; ++r) {
      quants[r].Load(params.quantised, stage + (first + r) * params.quantised.tile_bytes,
                     SharedMemory() + SuperSlot(tile) + (first + r) * params.quantised.super_bytes);
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t a[Base::kRowFragments][4];
#pragma unroll
      for (int r = 0; r < Base::kRowFragments; ++r) {
        if constexpr (kNarrow) {
          quants[r].template NarrowFragment<kHalf>(w, a[r]);
        } else {
          quants[r].template Fragment<kHalf>(params.quantised, w, a[r]);
        }
      }
      Base::template MultiplyTokens<kHalf>(stage + kWeightBytes, 2 * w, a);
    }
  }
};

}  // namespace quire::kernels::cuda
