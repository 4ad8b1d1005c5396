// The tile of a block of attention: its queries, the keys that they see, and the pages of those
// keys.
#pragma once

#include "kernels/cuda/ops/attention/attention_tile.h"
#include "kernels/cuda/ops/fp8.h"

namespace quire::kernels::cuda {

// Eight elements of a query to shared memory, as products with pages of the type take them; zeros
// where there are none.
template <KvType kType>
QUIRE_DEVICE void CopyQueryPiece(unsigned char* to, const uint16_t* from, bool there) {
  if constexpr (kType == KvType::kF16) {
    Vector16 x{{0, 0, 0, 0}};
    if (there) x = Load16(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x.word[j] = PackF16(SaturatedF16(LowBf16(x.word[j])), SaturatedF16(HighBf16(x.word[j])));
    }
    Store16(to, x);
  } else {
    AsyncCopy16(to, from, there ? 16 : 0);
  }
}

// kWarps: of sixteen rows each; kColumnWarps: that share such rows.
template <int kHeadDim, int kWarps, KvType kType, int kColumnWarps = 1>
struct AttentionQueries {
  using Rows = AttentionRows<kHeadDim, kType>;
  static constexpr int kThreads = 32 * kWarps * kColumnWarps;
  static constexpr int kQBytes = 16 * kWarps * Rows::kRowBytes;

  const AttentionParams& params;
  AttentionSequence sequence;
  AttentionTile tile;
  int group;
  int queries;    // of this tile
  int first_key;  // that any of its rows sees
  int last_key;

  // `part`: which of the blocks that share the tile.
  QUIRE_DEVICE explicit AttentionQueries(const AttentionParams& p, int part = 0) : params(p) {
    tile = p.tiles[BlockX()];
    sequence = p.sequences[tile.sequence];
    group = p.heads / p.kv_heads;
    const int fit = 16 * kWarps / group;
    const int of_tile = kMostTileRows / group - part * fit;
    tile.first_query += part * fit;
    const int of_sequence = sequence.token_count - tile.first_query;
    const int left = of_sequence < of_tile ? of_sequence : of_tile;
    queries = left < fit ? left : fit;
    const int first_position = sequence.first_position + tile.first_query;
    first_key = p.window > 0 && first_position >= p.window ? first_position - p.window + 1 : 0;
    last_key = first_position + queries - 1;
  }

  // Row i of the tile is query i / group, head i % group of the KV head's.
  QUIRE_DEVICE size_t HeadOf(int row) const {
    return static_cast<size_t>(BlockY()) * group + row % group;
  }
  QUIRE_DEVICE size_t TokenOf(int row) const {
    return static_cast<size_t>(sequence.first_token) + tile.first_query + row / group;
  }
  QUIRE_DEVICE bool Exists(int row) const { return row < queries * group; }
  // Whether a piece of 8 elements belongs to the head; those after it are zeros in shared memory.
  QUIRE_DEVICE bool IsOfHead(int piece) const { return 8 * piece < params.head_dim; }
  QUIRE_DEVICE bool IsSeen(int key) const { return key >= first_key && key <= last_key; }

  // Of the lane's rows among the sixteen of a warp.
  QUIRE_DEVICE RowKeys KeysOfWarp(int warp) const {
    RowKeys rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * warp + Lane() / 4 + 8 * r;
      const int position = sequence.first_position + tile.first_query + row / group;
      rows.first[r] = params.window > 0 ? position - params.window + 1 : 0;
      rows.last[r] = Exists(row) ? position : -1;
    }
    return rows;
  }

  QUIRE_DEVICE void CopyQueries() const {
#pragma unroll 1
    for (int i = ThreadIndex(); i < 16 * kWarps * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const uint16_t* from = params.q;
      const bool there = Exists(row) && IsOfHead(piece);
      if (there) {
        from += TokenOf(row) * params.q_stride + HeadOf(row) * params.head_dim + 8 * piece;
      }
      unsigned char* to = SharedMemory() + Rows::Swizzled(row, piece);
      CopyQueryPiece<kType>(to, from, there);
    }
  }

  // The page that holds the lane-th part of a tile of keys; only pages of keys that a row sees.
  QUIRE_DEVICE uint32_t PageOfLane(int key_tile) const {
    const int32_t* table =
        params.block_tables + static_cast<size_t>(tile.sequence) * params.block_table_stride;
    const int page = (key_tile * kAttentionKeys >> params.block_shift) + Lane();
    const bool seen = Lane() < kAttentionKeys >> params.block_shift &&
                      page << params.block_shift <= last_key &&
                      (page + 1) << params.block_shift > first_key;
    return seen ? static_cast<uint32_t>(table[page]) : 0u;
  }

  QUIRE_DEVICE int64_t ElementAt(uint32_t page, int key) const {
    const int token = key & ((1 << params.block_shift) - 1);
    return page * params.page_stride + BlockY() * params.head_stride +
           static_cast<int64_t>(token) * params.token_stride;
  }
};

}  // namespace quire::kernels::cuda
