// One warp's part of sixteen rows of attention over latents: some keys' scores, and some columns of
// the output.
//
// Rows of shared memory hold kDim elements, permuted as attention's are. A warp of kColumnWarps
// scores its keys of the tile; all of them read all scores, weigh them alike, and add up values,
// each its own columns.
#pragma once

#include "kernels/cuda/ops/attention/attention_tile.h"

namespace quire::kernels::cuda {

template <int kDim, int kValues, int kColumnWarps, KvType kType>
struct LatentRows : AttentionRows<kValues / kColumnWarps, kType> {
  using Base = AttentionRows<kValues / kColumnWarps, kType>;
  using Base::kOctets, Base::kScaled, Base::Multiply, Base::PackWeights, Base::out;
  static constexpr int kPieces = kDim / 8;
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kKeyOctets = 8 / kColumnWarps;      // that a warp scores
  static constexpr int kScoreStride = kAttentionKeys + 8;  // floats: the eight spread the banks
  static constexpr int kMergeOctets = kOctets < 8 ? kOctets : 8;

  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kRowBytes + (piece ^ (row & 7)) * 16;
  }

  // The scores of keys 8 · first … of the tile, in the order of attention, to `scores`, [16][keys].
  QUIRE_DEVICE static void Scores(const unsigned char* q, const unsigned char* latents, int first,
                                  float* scores) {
    const int lane = Lane();
    float score[kKeyOctets][4];
#pragma unroll
    for (int o = 0; o < kKeyOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[o][i] = 0.0f;
    }
#pragma unroll 2
    for (int piece = 0; piece < kPieces; piece += 2) {
      uint32_t a[4];
      LoadMatrices4(a, q + Swizzled(lane % 16, piece + lane / 16));
#pragma unroll
      for (int o = 0; o < kKeyOctets; o += 2) {
        uint32_t b[4];
        const int key = 8 * (first + o) + lane / 16 * 8 + lane % 8;
        LoadMatrices4(b, latents + Swizzled(key, piece + lane / 8 % 2));
        Multiply(score[o], a, b[0], b[1]);
        Multiply(score[o + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int o = 0; o < kKeyOctets; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* to = scores + (lane / 4 + 8 * r) * kScoreStride + 8 * (first + o) + lane % 4 * 2;
        *reinterpret_cast<uint64_t*>(to) =
            BitsOfFloat(score[o][2 * r]) | static_cast<uint64_t>(BitsOfFloat(score[o][2 * r + 1]))
                                               << 32;
      }
    }
  }

  // All scores of the rows, as the tensor core lays them out.
  QUIRE_DEVICE static void LoadScores(const float* scores, float (&score)[8][4]) {
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* from = scores + (Lane() / 4 + 8 * r) * kScoreStride + 8 * o + Lane() % 4 * 2;
        const uint64_t both = *reinterpret_cast<const uint64_t*>(from);
        score[o][2 * r] = FloatOfBits(static_cast<uint32_t>(both));
        score[o][2 * r + 1] = FloatOfBits(static_cast<uint32_t>(both >> 32));
      }
    }
  }

  // out += weights · the columns of the tile from octet `first` on.
  QUIRE_DEVICE void AddValues(const unsigned char* latents, int first, const float* factors,
                              const float (&weight)[8][4]) {
    const int lane = Lane();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float(&left)[4] = weight[2 * step];
      const float(&right)[4] = weight[2 * step + 1];
      const float* own = kScaled ? factors + 16 * step + lane % 4 * 2 : nullptr;
      const float* next = kScaled ? own + 8 : nullptr;
      const uint32_t a[4] = {PackWeights(left[0], left[1], own), PackWeights(left[2], left[3], own),
                             PackWeights(right[0], right[1], next),
                             PackWeights(right[2], right[3], next)};
#pragma unroll
      for (int o = 0; o < kOctets; o += 2) {
        uint32_t b[4];
        LoadMatrices4Transposed(b,
                                latents + Swizzled(16 * step + lane % 16, first + o + lane / 16));
        Multiply(out[o], a, b[0], b[1]);
        Multiply(out[o + 1], a, b[2], b[3]);
      }
    }
  }
};

}  // namespace quire::kernels::cuda
