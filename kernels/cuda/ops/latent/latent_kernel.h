// The kernel of attention over latents: the spans that a block runs, and how their results meet.
#pragma once

#include "kernels/cuda/ops/attention/attention_columns.h"
#include "kernels/cuda/ops/latent/latent_tile.h"
#include "kernels/cuda/runtime/kernel_handle.h"

namespace quire::kernels::cuda {

template <int kDim, int kValues, int kRowWarps, int kColumnWarps, KvType kType>
struct LatentBlock : AttentionColumns<LatentTile<kDim, kValues, kRowWarps, kColumnWarps, kType>> {
  using Tile = LatentTile<kDim, kValues, kRowWarps, kColumnWarps, kType>;
  using Columns = AttentionColumns<Tile>;
  using Columns::column_warp, Columns::row_warp;
  using Tile::CopyTile, Tile::Factors, Tile::Latents, Tile::PositionOf, Tile::Scores, Tile::kFp8,
      Tile::kRows, Tile::kThreads, Tile::params, Tile::rows, Tile::PlaceOf;
  using typename Tile::Rows;

  QUIRE_DEVICE explicit LatentBlock(const LatentAttentionParams& p) : Columns(p) {}

  QUIRE_DEVICE RowKeys KeysOfRows() const {
    RowKeys keys;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * row_warp + Lane() / 4 + 8 * r;
      keys.first[r] = 0;
      keys.last[r] = row < rows ? PositionOf(row) : -1;
    }
    return keys;
  }

  // Keys of tiles [first, last] from a fresh start.
  QUIRE_DEVICE void RunSpan(int first, int last, const RowKeys& keys, Rows& sums) const {
    sums.Clear();
    const unsigned char* q = SharedMemory() + 16 * row_warp * Rows::kRowBytes;
#pragma unroll 1
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      CopyTile(key_tile);
      AsyncCommit();
      AsyncWait<0>();
      BlockBarrier();
      Rows::Scores(q, Latents(), column_warp * Rows::kKeyOctets, Scores(row_warp));
      BlockBarrier();
      float score[8][4];
      Rows::LoadScores(Scores(row_warp), score);
      sums.Softmax(params, keys, key_tile * kAttentionKeys, kFp8 ? Factors() : nullptr, score);
      sums.AddValues(Latents(), column_warp * Rows::kOctets,
                     kFp8 ? Factors() + kAttentionKeys : nullptr, score);
      // All warps are done with the tile.
      BlockBarrier();
    }
    sums.FoldSums();
  }

  QUIRE_DEVICE void WriteRows() const {
    BlockBarrier();
    for (int i = ThreadIndex(); i < kRows * (kValues / 8); i += kThreads) {
      const int row = i / (kValues / 8);
      const int piece = i % (kValues / 8);
      const Vector16 y = Load16(SharedMemory() + Rows::Swizzled(row, piece));
      if (row >= rows || 8 * piece >= params.rank) continue;
      Store16(params.out + PlaceOf(row) * params.rank + 8 * piece, y);
    }
  }
};

// One block per tile and sixteen or sixty-four of its rows runs the spans in order, or one per
// span, and the last to arrive merges.
template <class Block>
QUIRE_DEVICE void LatentAttention(const LatentAttentionParams& params) {
  const Block block(params);
  constexpr int kTiles = kAttentionSpan / kAttentionKeys;
  const int last_tile = block.last_key / kAttentionKeys;
  const int spans = last_tile / kTiles + 1;
  if (block.rows == 0 || (params.apart && BlockZ() >= spans)) return;
  block.CopyQueries();
  const RowKeys keys = block.KeysOfRows();
  const size_t place = static_cast<size_t>(BlockX()) * GridY() + BlockY();
  typename Block::Rows sums;
  const int begin = params.apart ? BlockZ() : 0;
  const int end = params.apart ? begin : spans - 1;
  for (int span = begin; span <= end; ++span) {
    const int last = span * kTiles + kTiles - 1;
    block.RunSpan(span * kTiles, last < last_tile ? last : last_tile, keys, sums);
    if (params.apart) continue;
    // The result of earlier spans waits in the workspace.
    if (span > begin) sums.template Merge<true>(block.Saved(place, 0));
    if (span < end) sums.Store(block.Workspace(place));
  }
  if (params.apart && spans > 1) {
    sums.Store(block.Workspace(place * GridZ() + BlockZ()));
    auto* flag = Shared<uint32_t>(Block::kSharedBytes - 16);
    if (!LastToArrive(params.counters + place, static_cast<uint32_t>(spans), flag)) return;
    block.MergeAndTurn(place * GridZ(), spans);
  } else {
    block.Turn(sums, 0);
  }
  block.WriteRows();
}

// Tests have narrow latents, published models wide ones: these have sixteen rows, or sixty-four
// where a block's shared memory has room for their queries.
template <KvType kType>
using NarrowLatents = LatentBlock<128, 64, 1, 4, kType>;
template <KvType kType>
using WideLatents16 = LatentBlock<576, 512, 1, 4, kType>;
template <KvType kType>
using WideLatents64 = LatentBlock<576, 512, 4, 2, kType>;
static_assert(WideLatents16<KvType::kFp8>::kSharedBytes <=
              static_cast<int>(runtime::kLeastSharedBytes));

struct LatentInstance {
  runtime::KernelHandle kernel;
  int rows = 0;
  uint32_t shared_bytes = 0;
};
template <class Block>
LatentInstance InstanceOfLatents(runtime::KernelHandle kernel) {
  return {kernel, Block::kRows, Block::kSharedBytes};
}

// The three of a type of pages: narrow, of 16 rows, of 64.
struct LatentInstances {
  LatentInstance narrow, wide16, wide64;
};
LatentInstances LatentsBf16();
LatentInstances LatentsF16();
LatentInstances LatentsFp8();

}  // namespace quire::kernels::cuda
