// What a block of attention over latents has in shared memory: its queries, one tile of latents,
// scores, and the factors of fp8.
//
// There is room for one tile on every device: the blocks that share a multiprocessor, two of the
// narrow form, fill each other's waits. Codes of fp8 are widened on their way from their pages.
#pragma once

#include "kernels/cuda/ops/attention/attention_queries.h"
#include "kernels/cuda/ops/attention/shared_rows.h"
#include "kernels/cuda/ops/latent/latent_attention.h"

namespace quire::kernels::cuda {

template <int kDim, int kValues, int kRowWarpCount, int kColumnWarpCount, KvType kType>
struct LatentTile {
  using Rows = SharedRows<kDim, kValues, kColumnWarpCount, kType>;
  static constexpr int kRowWarps = kRowWarpCount;
  static constexpr int kColumnWarps = kColumnWarpCount;
  static constexpr bool kFp8 = kType == KvType::kFp8;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kTileAt = kRows * Rows::kRowBytes;
  static constexpr int kScoresAt = kTileAt + kAttentionKeys * Rows::kRowBytes;
  static constexpr int kFactorsAt = kScoresAt + kRows * Rows::kScoreStride * 4;
  static constexpr int kSharedBytes = kFactorsAt + (kFp8 ? 2 * kAttentionKeys * 4 : 0) + 16;

  const LatentAttentionParams& params;
  AttentionSequence sequence;
  AttentionTile tile;
  int first_row;  // of the tile's rows, those of query 0 first
  int rows;       // that there are of it
  int last_key;   // that any of them sees

  QUIRE_DEVICE explicit LatentTile(const LatentAttentionParams& p) : params(p) {
    tile = p.tiles[BlockX()];
    sequence = p.sequences[tile.sequence];
    first_row = BlockY() * kRows;
    const int left = sequence.token_count - tile.first_query;
    const int queries = left < p.tile_queries ? left : p.tile_queries;
    const int behind = queries * p.heads - first_row;
    rows = behind < 0 ? 0 : behind < kRows ? behind : kRows;
    last_key = rows > 0 ? PositionOf(rows - 1) : -1;
  }

  QUIRE_DEVICE int HeadOf(int row) const { return (first_row + row) % params.heads; }
  QUIRE_DEVICE int QueryOf(int row) const {
    return tile.first_query + (first_row + row) / params.heads;
  }
  QUIRE_DEVICE int PositionOf(int row) const { return sequence.first_position + QueryOf(row); }
  // The row's place among all heads of all tokens.
  QUIRE_DEVICE size_t PlaceOf(int row) const {
    return static_cast<size_t>(sequence.first_token + QueryOf(row)) * params.heads + HeadOf(row);
  }

  QUIRE_DEVICE uint32_t Pack(float a, float b) const {
    return params.half ? PackFiniteF16(a, b) : PackBf16(a, b);
  }
  QUIRE_DEVICE static unsigned char* Latents() { return SharedMemory() + kTileAt; }
  QUIRE_DEVICE static float* Scores(int row_warp) {
    return Shared<float>(kScoresAt) + row_warp * 16 * Rows::kScoreStride;
  }
  // What scores are multiplied by, and behind it what weights are.
  QUIRE_DEVICE static float* Factors() { return Shared<float>(kFactorsAt); }

  QUIRE_DEVICE void CopyQueries() const {
#pragma unroll 1
    for (int i = ThreadIndex(); i < kRows * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const bool there = row < rows && 8 * piece < params.head_dim;
      const uint16_t* from = params.q;
      if (there) from += PlaceOf(row) * params.head_dim + 8 * piece;
      unsigned char* to = SharedMemory() + Rows::Swizzled(row, piece);
      CopyQueryPiece<kType>(to, from, there);
    }
  }

  // The page that holds the lane-th part of a tile; only pages of keys that a row sees.
  QUIRE_DEVICE uint32_t PageOfLane(int key_tile) const {
    const int32_t* table =
        params.block_tables + static_cast<size_t>(tile.sequence) * params.block_table_stride;
    const int page = (key_tile * kAttentionKeys >> params.block_shift) + Lane();
    const bool seen =
        Lane() < kAttentionKeys >> params.block_shift && page << params.block_shift <= last_key;
    return seen ? static_cast<uint32_t>(table[page]) : 0u;
  }
  QUIRE_DEVICE int SlotOf(int key) const { return key & ((1 << params.block_shift) - 1); }
  QUIRE_DEVICE int64_t ElementAt(uint32_t page, int key) const {
    return page * params.page_stride + static_cast<int64_t>(SlotOf(key)) * params.token_stride;
  }

  QUIRE_DEVICE bool IsSeen(int key) const { return key <= last_key; }

  QUIRE_DEVICE void CopyTile(int key_tile) const {
    CopySharedTile(*this, params.keys, key_tile, Latents());
    if constexpr (kFp8) CopyFactors(key_tile);
  }
  QUIRE_DEVICE void CopyFactors(int key_tile) const {
    for (int i = ThreadIndex(); i < kAttentionKeys; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i;
      float scale = 0.0f;
      if (IsSeen(key)) {
        const int32_t page =
            params.block_tables[static_cast<size_t>(tile.sequence) * params.block_table_stride +
                                (key >> params.block_shift)];
        scale = params.key_scales[page * params.scale_page_stride + SlotOf(key)];
      }
      Factors()[i] = scale * params.scale;
      Factors()[kAttentionKeys + i] = scale;
    }
  }
};

}  // namespace quire::kernels::cuda
