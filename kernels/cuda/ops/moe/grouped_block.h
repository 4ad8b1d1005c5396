// The block of a grouped product: a Tile of gemm/ whose rows of x are named by a list.
#pragma once

#include "kernels/cuda/ops/gemm/gemm_block.h"
#include "kernels/cuda/ops/gemm/quantised_tile.h"
#include "kernels/cuda/ops/moe/grouped_kernels.h"
#include "kernels/cuda/ops/moe/grouped_product.h"

namespace quire::kernels::cuda {

// The rows of x that a tile takes: those that a list names.
struct ListedRows {
  const int32_t* list;  // of the tile's rows on
  int rows;
  int per_row;  // neighbours in the list's numbers that share a row of x
  int stride;   // elements from row to row of x, a multiple of 8
};

template <class Tile>
struct GroupedTile : Tile {
  // Behind the ring: where the row of x of each row of the tile begins, in eights of elements; −1:
  // it has none.
  static constexpr int kRowsAt = Tile::kSharedBytes;
  static constexpr int kSharedBytes = kRowsAt + Tile::kTokens * 4;
  static_assert(kSharedBytes <= static_cast<int>(runtime::kLeastSharedBytes));

  QUIRE_DEVICE static void ReadRows(const ListedRows& rows) {
    auto* begins = Shared<int32_t>(kRowsAt);
    for (int i = ThreadIndex(); i < Tile::kTokens; i += kGemmThreads) {
      begins[i] = i < rows.rows ? rows.list[i] / rows.per_row * (rows.stride / 8) : -1;
    }
    BlockBarrier();
  }

  QUIRE_DEVICE static void FillTokens(const GemmParams& params, int slot, int tile,
                                      const GemmCorner&) {
    unsigned char* to = SharedMemory() + slot * Tile::kStageBytes + Tile::kWeightBytes;
    const auto* begins = Shared<int32_t>(kRowsAt);
    for (int i = ThreadIndex(); i < Tile::kTokens * 8; i += kGemmThreads) {
      const int begin = begins[i / 8];
      const int k = tile * kGemmDepth + i % 8 * 8;
      const bool inside = begin >= 0 && k < params.k;
      const uint16_t* from = params.x;
      if (inside) from += static_cast<size_t>(begin) * 8 + k;
      AsyncCopy16(to + Tile::Swizzled(i / 8, i % 8), from, inside ? 16 : 0);
    }
  }
};

// The turned sums of a tile, each row to that of its pair.
template <int kTokens, int kStride, int kWide>
QUIRE_DEVICE void StorePairs(const GemmParams& params, const int32_t* pairs, int rows,
                             const float* turned) {
  for (int i = ThreadIndex(); i < kTokens * kGemmRows / kWide; i += kGemmThreads) {
    const int local = i / (kGemmRows / kWide);
    const int local_row = i % (kGemmRows / kWide) * kWide;
    const int row = BlockY() * kGemmRows + local_row;
    if (local >= rows || row >= params.n) continue;
    const float* from = turned + local * kStride + local_row;
    if (kWide == 4) {
      StoreFloats(params, pairs[local], row, from);
    } else {
      StoreBf16(params, pairs[local], row, from);
    }
  }
}

// The sums of a tile, each row to that of its pair.
template <class Tile>
QUIRE_DEVICE void FinishPairs(const GemmParams& params, const int32_t* pairs, int rows,
                              const Tile& total) {
  const float* turned = Turn(total);
  if (params.out_float32) {
    StorePairs<Tile::kTokens, Tile::kOutStride, 4>(params, pairs, rows, turned);
  } else {
    StorePairs<Tile::kTokens, Tile::kOutStride, 8>(params, pairs, rows, turned);
  }
}

template <class OneTile>
QUIRE_DEVICE void GroupedGemm(const GroupedParams& params) {
  using Tile = GroupedTile<OneTile>;
  WaitForEarlierKernels();
  LetLaterKernelsBegin();
  if (BlockX() >= *params.tile_count) return;
  const ExpertTile own = params.tiles[BlockX()];
  GemmParams product = params.product;
  const int64_t weights = own.expert * params.weight_bytes;
  if (product.weight != nullptr) product.weight += weights / 2;
  if (product.quantised.data != nullptr) product.quantised.data += weights;
  if (product.bias != nullptr) product.bias += own.expert * params.bias_floats;
  Tile::ReadRows({params.pairs + own.first, own.rows, params.per_row, product.k});
  Tile tile;
  Tile total;
  SumPieces(product, {0, product.splits, false}, tile, total);
  FinishPairs(product, params.pairs + own.first, own.rows, total);
}

template <class Tile>
GemmKernel GroupedKernelOf(runtime::KernelHandle kernel) {
  return {kernel, Tile::kTokens, static_cast<uint32_t>(GroupedTile<Tile>::kSharedBytes)};
}

}  // namespace quire::kernels::cuda
