// The tile of a GEMM block: its ring in shared memory, its fragments, its sums.
//
// A block of 256 threads makes 128 weights × kTokens rows of x. A stage of the ring holds 64 of K:
// rows of 128 bytes, whose eight 16-byte pieces are permuted by the row's number modulo 8, so that
// copies and matrix loads meet no bank twice.
#pragma once

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/device/tensor_core.h"
#include "kernels/cuda/ops/gemm/gemm.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

inline constexpr int kGemmThreads = 256;
inline constexpr int kGemmRows = 128;  // weights of a block
inline constexpr int kGemmDepth = 64;  // of K in a stage
inline constexpr int kGemmRowBytes = kGemmDepth * 2;

template <bool kHalf>
QUIRE_DEVICE void MultiplyAs(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kHalf) {
    MultiplyF16(d, a, b0, b1);
  } else {
    MultiplyBf16(d, a, b0, b1);
  }
}

// Where a block's tile of the result, and its piece of K, begin.
struct GemmCorner {
  int row;
  int token;
  int tile;  // of 64 of K
};

template <int kTokensOfTile, int kStagesOfRing>
struct GemmTile {
  static constexpr int kTokens = kTokensOfTile;
  static constexpr int kStages = kStagesOfRing;
  static constexpr int kTokenWarps = kTokens == 128 ? 2 : 1;
  static constexpr int kRowWarps = 8 / kTokenWarps;
  static constexpr int kRowFragments = kGemmRows / 16 / kRowWarps;
  static constexpr int kOctets = kTokens / 8 / kTokenWarps;
  static constexpr int kWeightBytes = kGemmRows * kGemmRowBytes;  // of a stage, before its tokens
  static constexpr int kStageBytes = kWeightBytes + kTokens * kGemmRowBytes;
  // Results pass through shared memory as [token][128 + 4] float32: the four spread the banks.
  static constexpr int kOutStride = kGemmRows + 4;
  static constexpr int kOutBytes = kTokens * kOutStride * 4;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes = (kRingBytes > kOutBytes ? kRingBytes : kOutBytes) + 16;

  float sum[kRowFragments][kOctets][4];

  QUIRE_DEVICE void Clear() {
#pragma unroll
    for (int r = 0; r < kRowFragments; ++r) {
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[r][o][i] = 0.0f;
      }
    }
  }

  QUIRE_DEVICE void Add(const GemmTile& other) {
#pragma unroll
    for (int r = 0; r < kRowFragments; ++r) {
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[r][o][i] = sum[r][o][i] + other.sum[r][o][i];
      }
    }
  }

  // Makes of the sums over the whole of K what the operations on the result take.
  QUIRE_DEVICE void Settle(const GemmParams&) {}

  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kGemmRowBytes + (piece ^ (row & 7)) * 16;
  }

  // A matrix of 16-bit numbers in global memory.
  struct Matrix {
    const uint16_t* from;
    int rows;
    int depth;
  };

  // Copies kRows rows from row `first` on, 64 of K from `k`; zeros outside the matrix.
  template <int kRows>
  QUIRE_DEVICE static void Copy(unsigned char* to, const Matrix& matrix, int first, int k) {
    for (int i = ThreadIndex(); i < kRows * 8; i += kGemmThreads) {
      const int row = i / 8;
      const int piece = i % 8;
      const int at_k = k + piece * 8;
      const bool inside = first + row < matrix.rows && at_k < matrix.depth;
      const uint16_t* source = matrix.from;
      if (inside) source += static_cast<size_t>(first + row) * matrix.depth + at_k;
      AsyncCopy16(to + Swizzled(row, piece), source, inside ? 16 : 0);
    }
  }

  // Start the copies of one stage.
  QUIRE_DEVICE static void FillWeights(const GemmParams& params, int slot, int tile,
                                       const GemmCorner& corner) {
    Copy<kGemmRows>(SharedMemory() + slot * kStageBytes, {params.weight, params.n, params.k},
                    corner.row, tile * kGemmDepth);
  }
  QUIRE_DEVICE static void FillTokens(const GemmParams& params, int slot, int tile,
                                      const GemmCorner& corner) {
    unsigned char* stage = SharedMemory() + slot * kStageBytes;
    Copy<kTokens>(stage + kGemmRows * kGemmRowBytes, {params.x, params.m, params.k}, corner.token,
                  tile * kGemmDepth);
  }

  // Adds one stage's 64 products to every sum, in the order of k.
  QUIRE_DEVICE void Multiply(const GemmParams& params, int slot, int) {
    if (params.half) {
      MultiplyStage<true>(slot);
    } else {
      MultiplyStage<false>(slot);
    }
  }

  template <bool kHalf>
  QUIRE_DEVICE void MultiplyStage(int slot) {
    const unsigned char* weights = SharedMemory() + slot * kStageBytes;
    const unsigned char* tokens = weights + kGemmRows * kGemmRowBytes;
    const int lane = Lane();
    const int first_row = WarpIndex() % kRowWarps * kRowFragments * 16;
#pragma unroll(kHalf ? 2 : 4)  // both whole would need too many registers
    for (int piece = 0; piece < 8; piece += 2) {
      uint32_t a[kRowFragments][4];
#pragma unroll
      for (int r = 0; r < kRowFragments; ++r) {
        LoadMatrices4(a[r], weights + Swizzled(first_row + 16 * r + lane % 16, piece + lane / 16));
      }
      MultiplyTokens<kHalf>(tokens, piece, a);
    }
  }

  // Adds the products of 16 of K, those of pieces `piece` and `piece + 1` of the rows of x.
  template <bool kHalf>
  QUIRE_DEVICE void MultiplyTokens(const unsigned char* tokens, int piece,
                                   const uint32_t (&a)[kRowFragments][4]) {
    const int lane = Lane();
    const int first_token = WarpIndex() / kRowWarps * kOctets * 8;
    if (kOctets == 1) {
      uint32_t b[2];
      LoadMatrices2(b, tokens + Swizzled(first_token + lane % 8, piece + lane / 8 % 2));
#pragma unroll
      for (int r = 0; r < kRowFragments; ++r) MultiplyAs<kHalf>(sum[r][0], a[r], b[0], b[1]);
    } else {
#pragma unroll
      for (int o = 0; o + 1 < kOctets; o += 2) {
        uint32_t b[4];
        const int token = first_token + 8 * o + lane / 16 * 8 + lane % 8;
        LoadMatrices4(b, tokens + Swizzled(token, piece + lane / 8 % 2));
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r) {
          MultiplyAs<kHalf>(sum[r][o], a[r], b[0], b[1]);
          MultiplyAs<kHalf>(sum[r][o + 1], a[r], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace quire::kernels::cuda
