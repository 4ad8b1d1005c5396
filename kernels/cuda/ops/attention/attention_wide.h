// The block of attention over heads of more than 256 elements, whose sums do not fit in the
// registers of one warp: column warps share sixteen rows, as in attention over latents.
//
// There is room for the keys or the values of one tile: values are copied while scores become
// weights, and the blocks that share a multiprocessor fill each other's waits. Codes of fp8 are
// widened on their way from their pages.
#pragma once

#include "kernels/cuda/ops/attention/attention_columns.h"
#include "kernels/cuda/ops/attention/attention_queries.h"
#include "kernels/cuda/ops/attention/shared_rows.h"

namespace quire::kernels::cuda {

inline constexpr int kWideHeadDim = 512;

// What a block has in shared memory: its queries, the keys or values of a tile, scores, and the
// factors of fp8. A tile of 64 rows is the work of one block, or of several with sixteen rows each.
template <int kRowWarpCount, int kColumnWarpCount, KvType kType>
struct WideTile : AttentionQueries<kWideHeadDim, kRowWarpCount, kType, kColumnWarpCount> {
  using Queries = AttentionQueries<kWideHeadDim, kRowWarpCount, kType, kColumnWarpCount>;
  using Rows = SharedRows<kWideHeadDim, kWideHeadDim, kColumnWarpCount, kType>;
  using Queries::IsSeen, Queries::kQBytes, Queries::kThreads, Queries::params;
  static constexpr int kRowWarps = kRowWarpCount;
  static constexpr int kColumnWarps = kColumnWarpCount;
  static constexpr bool kFp8 = kType == KvType::kFp8;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kScoresAt = kQBytes + kAttentionKeys * Rows::kRowBytes;
  static constexpr int kFactorsAt = kScoresAt + kRows * Rows::kScoreStride * 4;
  static constexpr int kSharedBytes = kFactorsAt + (kFp8 ? 2 * kAttentionKeys * 4 : 0) + 16;

  QUIRE_DEVICE explicit WideTile(const AttentionParams& p) : Queries(p, p.apart ? 0 : BlockZ()) {}

  QUIRE_DEVICE static unsigned char* Keys() { return SharedMemory() + kQBytes; }  // or values
  QUIRE_DEVICE static float* Scores(int row_warp) {
    return Shared<float>(kScoresAt) + row_warp * 16 * Rows::kScoreStride;
  }
  // What scores are multiplied by, and after those what weights are.
  QUIRE_DEVICE static float* Factors() { return Shared<float>(kFactorsAt); }
  QUIRE_DEVICE static uint32_t Pack(float a, float b) { return PackBf16(a, b); }

  template <bool kValues>
  QUIRE_DEVICE void CopyTile(int key_tile) const {
    CopySharedTile(*this, kValues ? params.values : params.keys, key_tile, Keys());
    if constexpr (kFp8) CopyFactors<kValues>(key_tile);
  }
  template <bool kValues>
  QUIRE_DEVICE void CopyFactors(int key_tile) const {
    const float* scales = kValues ? params.value_scales : params.key_scales;
    for (int i = ThreadIndex(); i < kAttentionKeys; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i;
      // The scale of a key that no row sees is arbitrary.
      float scale = 0.0f;
      if (IsSeen(key)) {
        const int block = key >> params.block_shift;
        const int64_t page =
            params
                .block_tables[static_cast<size_t>(this->tile.sequence) * params.block_table_stride +
                              block];
        scale = scales[page * params.scale_page_stride + (BlockY() << params.block_shift) + key -
                       (block << params.block_shift)];
      }
      Factors()[(kValues ? kAttentionKeys : 0) + i] = kValues ? scale : scale * params.scale;
    }
  }
};

template <int kRowWarps, int kColumnWarps, KvType kType>
struct WideBlock : AttentionColumns<WideTile<kRowWarps, kColumnWarps, kType>> {
  using Tile = WideTile<kRowWarps, kColumnWarps, kType>;
  using Columns = AttentionColumns<Tile>;
  using Rows = typename Tile::Rows;
  using Columns::column_warp, Columns::row_warp;
  using Tile::Exists, Tile::Factors, Tile::HeadOf, Tile::Keys, Tile::Scores, Tile::TokenOf,
      Tile::kFp8, Tile::kRows, Tile::kThreads, Tile::params, Tile::IsOfHead;
  static constexpr bool kKeepsTotal = false;

  QUIRE_DEVICE explicit WideBlock(const AttentionParams& p) : Columns(p) {}

  QUIRE_DEVICE RowKeys KeysOfRows() const { return this->KeysOfWarp(row_warp); }

  // Keys of tiles [first, last] from a fresh start.
  QUIRE_DEVICE void RunSpan(int first, int last, const RowKeys& keys, Rows& sums) const {
    sums.Clear();
    const unsigned char* q = SharedMemory() + 16 * row_warp * Rows::kRowBytes;
#pragma unroll 1
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      this->template CopyTile<false>(key_tile);
      AsyncCommit();
      AsyncWait<0>();
      BlockBarrier();
      Rows::Scores(q, Keys(), column_warp * Rows::kKeyOctets, Scores(row_warp));
      BlockBarrier();
      // All scores are here, and all warps are done with the keys.
      this->template CopyTile<true>(key_tile);
      AsyncCommit();
      float score[8][4];
      Rows::LoadScores(Scores(row_warp), score);
      sums.Softmax(params, keys, key_tile * kAttentionKeys, kFp8 ? Factors() : nullptr, score);
      AsyncWait<0>();
      BlockBarrier();
      sums.AddValues(Keys(), column_warp * Rows::kOctets,
                     kFp8 ? Factors() + kAttentionKeys : nullptr, score);
      // All warps are done with the values.
      BlockBarrier();
    }
    sums.FoldSums();
  }

  QUIRE_DEVICE void AddSinks(const Rows&) const {}  // wide heads have none

  QUIRE_DEVICE void WriteRows() const {
    BlockBarrier();
    for (int i = ThreadIndex(); i < kRows * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const Vector16 y = Load16(SharedMemory() + Rows::Swizzled(row, piece));
      if (!Exists(row) || !IsOfHead(piece)) continue;
      const size_t head = TokenOf(row) * params.heads + HeadOf(row);
      Store16(params.out + head * params.head_dim + 8 * piece, y);
    }
  }
};

// Tiles of sixteen rows have the first; those of 64 the second where a block's shared memory has
// room for their queries, else several of the first.
template <KvType kType>
using WideBlock16 = WideBlock<1, 4, kType>;
template <KvType kType>
using WideBlock64 = WideBlock<4, 2, kType>;
static_assert(WideBlock16<KvType::kFp8>::kSharedBytes <= runtime::kLeastSharedBytes);

}  // namespace quire::kernels::cuda
