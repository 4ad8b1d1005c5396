// The block of attention: kWarps warps of sixteen rows share the tiles of keys and values of one KV
// head.
#pragma once

#include "kernels/cuda/ops/attention_tile.h"

namespace quire::kernels::cuda {

template <int kHeadDim, int kWarps>
struct AttentionBlock {
  using Rows = AttentionRows<kHeadDim>;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kQBytes = 16 * kWarps * Rows::kRowBytes;
  static constexpr int kTileBytes = kAttentionKeys * Rows::kRowBytes;  // of keys, or of values
  static constexpr int kSharedBytes = kQBytes + 4 * kTileBytes + 16;
  static constexpr int kWorkspaceFloats = kWarps * Rows::kVectors * 128;

  const AttentionParams& params;
  AttentionSequence sequence;
  AttentionTile tile;
  int group;
  int queries;    // of this tile
  int first_key;  // that any of its rows sees
  int last_key;

  QUIRE_DEVICE explicit AttentionBlock(const AttentionParams& p) : params(p) {
    tile = p.tiles[BlockX()];
    sequence = p.sequences[tile.sequence];
    group = p.heads / p.kv_heads;
    const int fit = 16 * kWarps / group;
    const int left = sequence.token_count - tile.first_query;
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
  // Whether a piece of 8 elements is of the head; those behind it are zeros in shared memory.
  QUIRE_DEVICE bool IsOfHead(int piece) const { return 8 * piece < params.head_dim; }

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
      AsyncCopy16(SharedMemory() + Rows::Swizzled(row, piece), from, there ? 16 : 0);
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

  // The keys and values of one tile; zeros for keys that no row sees.
  QUIRE_DEVICE void CopyTile(int slot, int key_tile) const {
    unsigned char* to = SharedMemory() + kQBytes + slot * 2 * kTileBytes;
    const uint32_t pages = PageOfLane(key_tile);
    // Every thread makes as many rounds: lanes meet in each to learn their page.
#pragma unroll 1
    for (int i = ThreadIndex(); i < kAttentionKeys * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const int key = key_tile * kAttentionKeys + row;
      const uint32_t page = Shuffle(pages, row >> params.block_shift);
      const bool seen = key >= first_key && key <= last_key && IsOfHead(piece);
      int64_t at = 0;
      if (seen) {
        const int token = key & ((1 << params.block_shift) - 1);
        at = page * params.page_stride + BlockY() * params.head_stride +
             static_cast<int64_t>(token) * params.head_dim + 8 * piece;
      }
      const int place = Rows::Swizzled(row, piece);
      AsyncCopy16(to + place, params.keys + at, seen ? 16 : 0);
      AsyncCopy16(to + kTileBytes + place, params.values + at, seen ? 16 : 0);
    }
  }

  QUIRE_DEVICE RowKeys KeysOfRows() const {
    RowKeys rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * WarpIndex() + Lane() / 4 + 8 * r;
      const int position = sequence.first_position + tile.first_query + row / group;
      rows.first[r] = params.window > 0 ? position - params.window + 1 : 0;
      rows.last[r] = Exists(row) ? position : -1;
    }
    return rows;
  }

  // Keys of tiles [first, last] from a fresh start.
  QUIRE_DEVICE void RunSpan(int first, int last, const RowKeys& keys, Rows& rows) const {
    rows.Clear();
    CopyTile(first % 2, first);
    AsyncCommit();
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      AsyncWait<0>();
      // All copies of this tile are here, and all warps are done with the tile before it.
      BlockBarrier();
      if (key_tile < last) CopyTile((key_tile + 1) % 2, key_tile + 1);
      AsyncCommit();
      const unsigned char* tile_keys = SharedMemory() + kQBytes + key_tile % 2 * 2 * kTileBytes;
      float score[8][4];
      Rows::Scores(SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes, tile_keys, score);
      rows.Softmax(params, keys, key_tile * kAttentionKeys, score);
      rows.AddValues(tile_keys + kTileBytes, score);
    }
    AsyncWait<0>();
    BlockBarrier();
    rows.FoldSums();
  }

  // The lane's place in slot `slot` of the workspace, and what it saved there from an octet on.
  QUIRE_DEVICE float* Workspace(size_t slot) const {
    return params.workspace + slot * kWorkspaceFloats + WarpIndex() * Rows::kVectors * 128 +
           Lane() * 4;
  }
  QUIRE_DEVICE SavedRows Saved(size_t slot, int octet) const {
    const float* at = Workspace(slot);
    return {at + octet * 128, at + Rows::kOctets * 128};
  }

  // Divides by the sums; octets from `first` on go to shared memory, where the queries were.
  template <class Octets>
  QUIRE_DEVICE void Turn(const Octets& rows, int first) const {
    unsigned char* own = SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes;
#pragma unroll
    for (int o = 0; o < Octets::kOctets; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        unsigned char* to = own + Rows::Swizzled(Lane() / 4 + 8 * r, first + o) + Lane() % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) =
            PackBf16(rows.out[o][2 * r] / rows.sum[r], rows.out[o][2 * r + 1] / rows.sum[r]);
      }
    }
  }

  // Merges the spans in slots [first, first + count), eight octets at a time.
  QUIRE_DEVICE void MergeAndTurn(size_t first, int count) const {
#pragma unroll 1
    for (int octet = 0; octet < Rows::kOctets; octet += 8) {
      AttentionRows<64> some;
      some.Load(Saved(first, octet));
#pragma unroll 1
      for (int span = 1; span < count; ++span) {
        some.template Merge<false>(Saved(first + span, octet));
      }
      Turn(some, octet);
    }
  }

  // Writes whole rows from shared memory.
  QUIRE_DEVICE void WriteRows() const {
    const unsigned char* own = SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes;
    WarpBarrier();
    for (int i = Lane(); i < 16 * Rows::kPieces; i += kWarpSize) {
      const int local = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const int row = 16 * WarpIndex() + local;
      const Vector16 y = Load16(own + Rows::Swizzled(local, piece));
      if (!Exists(row) || !IsOfHead(piece)) continue;
      const size_t head = TokenOf(row) * params.heads + HeadOf(row);
      Store16(params.out + head * params.head_dim + 8 * piece, y);
    }
  }
};

}  // namespace quire::kernels::cuda
