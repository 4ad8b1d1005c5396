// What a block of attention brings to shared memory: its queries, and tiles of keys and values out
// of their pages.
//
// Pages of fp8 are copied as they are, and a tile of them is widened to bfloat16 in shared memory
// when its turn comes: two tiles of codes and one of bfloat16 take the room of two of bfloat16.
#pragma once

#include "kernels/cuda/ops/attention_tile.h"
#include "kernels/cuda/ops/fp8.h"

namespace quire::kernels::cuda {

template <int kHeadDim, int kWarps, KvType kType>
struct AttentionTiles {
  using Rows = AttentionRows<kHeadDim, kType>;
  static constexpr bool kFp8 = kType == KvType::kFp8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kQBytes = 16 * kWarps * Rows::kRowBytes;
  static constexpr int kTileBytes = kAttentionKeys * Rows::kRowBytes;  // of keys, or of values
  // Of fp8: codes of two tiles behind the one that is multiplied, then [slot][keys, values] scales
  // and what scores and weights are multiplied by.
  static constexpr int kCodeBytes = kAttentionKeys * kHeadDim;  // of keys, or of values
  static constexpr int kCodesAt = kQBytes + 2 * kTileBytes;
  static constexpr int kScalesAt = kQBytes + 4 * kTileBytes;
  static constexpr int kScales = 2 * kAttentionKeys;  // of a tile
  static constexpr int kFactorsAt = kScalesAt + 2 * kScales * 4;
  static constexpr int kScaleBytes = kFp8 ? 3 * kScales * 4 : 0;
  static constexpr int kSharedBytes = kQBytes + 4 * kTileBytes + kScaleBytes + 16;

  const AttentionParams& params;
  AttentionSequence sequence;
  AttentionTile tile;
  int group;
  int queries;    // of this tile
  int first_key;  // that any of its rows sees
  int last_key;

  QUIRE_DEVICE explicit AttentionTiles(const AttentionParams& p) : params(p) {
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
      unsigned char* to = SharedMemory() + Rows::Swizzled(row, piece);
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

  QUIRE_DEVICE bool IsSeen(int key) const { return key >= first_key && key <= last_key; }

  // The keys and values of one tile; zeros for keys that no row sees.
  QUIRE_DEVICE void CopyTile(int slot, int key_tile) const {
    if constexpr (kFp8) {
      CopyCodes(slot, key_tile);
    } else {
      CopyElements(slot, key_tile);
    }
  }
  QUIRE_DEVICE void CopyElements(int slot, int key_tile) const {
    unsigned char* to = SharedMemory() + kQBytes + slot * 2 * kTileBytes;
    const uint32_t pages = PageOfLane(key_tile);
    // Every thread makes as many rounds: lanes meet in each to learn their page.
#pragma unroll 1
    for (int i = ThreadIndex(); i < kAttentionKeys * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const int key = key_tile * kAttentionKeys + row;
      const uint32_t page = Shuffle(pages, row >> params.block_shift);
      const bool seen = IsSeen(key) && IsOfHead(piece);
      const int64_t at = seen ? ElementAt(page, key) + 8 * piece : 0;
      const int place = Rows::Swizzled(row, piece);
      AsyncCopy16(to + place, static_cast<const uint16_t*>(params.keys) + at, seen ? 16 : 0);
      AsyncCopy16(to + kTileBytes + place, static_cast<const uint16_t*>(params.values) + at,
                  seen ? 16 : 0);
    }
  }
  QUIRE_DEVICE int64_t ElementAt(uint32_t page, int key) const {
    const int token = key & ((1 << params.block_shift) - 1);
    return page * params.page_stride + BlockY() * params.head_stride +
           static_cast<int64_t>(token) * params.token_stride;
  }

  // The codes and scales of one tile; zeros for keys that no row sees, and behind the head.
  QUIRE_DEVICE void CopyCodes(int slot, int key_tile) const {
    constexpr int kPieces = kHeadDim / 16;
    unsigned char* to = SharedMemory() + kCodesAt + slot * 2 * kCodeBytes;
    const uint32_t pages = PageOfLane(key_tile);
#pragma unroll 1
    for (int i = ThreadIndex(); i < kAttentionKeys * kPieces; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i / kPieces;
      const int first = i % kPieces * 16;
      const uint32_t page = Shuffle(pages, i / kPieces >> params.block_shift);
      const int left = IsSeen(key) ? params.head_dim - first : 0;
      const int valid = left < 0 ? 0 : left < 16 ? left : 16;
      const int64_t at = valid > 0 ? ElementAt(page, key) + first : 0;
      AsyncCopy16(to + 16 * i, static_cast<const unsigned char*>(params.keys) + at, valid);
      AsyncCopy16(to + kCodeBytes + 16 * i, static_cast<const unsigned char*>(params.values) + at,
                  valid);
    }
    if (WarpIndex() == 0) CopyScales(slot, key_tile, pages);
  }

  // Each lane of a warp those of four keys, or four values.
  QUIRE_DEVICE void CopyScales(int slot, int key_tile, uint32_t pages) const {
    const int four = Lane() % 16 * 4;
    const int key = key_tile * kAttentionKeys + four;
    const uint32_t page = Shuffle(pages, four >> params.block_shift);
    int valid = last_key - key + 1 < 4 ? 4 * (last_key - key + 1) : 16;
    if (key + 3 < first_key || valid < 0) valid = 0;
    const float* from = Lane() < 16 ? params.key_scales : params.value_scales;
    if (valid > 0) {
      from += page * params.scale_page_stride + (BlockY() << params.block_shift) +
              (key & ((1 << params.block_shift) - 1));
    }
    AsyncCopy16(SharedMemory() + kScalesAt + (slot * kScales + Lane() * 4) * 4, from, valid);
  }

  // Makes the tile in slot `slot` the one that is multiplied.
  QUIRE_DEVICE void Widen(int slot, int key_tile) const {
    constexpr int kPieces = kHeadDim / 16;
    const unsigned char* codes = SharedMemory() + kCodesAt + slot * 2 * kCodeBytes;
#pragma unroll 1
    for (int i = ThreadIndex(); i < 2 * kAttentionKeys * kPieces; i += kThreads) {
      const Vector16 sixteen = Load16(codes + 16 * i);
      const int row = i / kPieces;  // those of values follow on those of keys
      Vector16 half[2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        WidenFp8(sixteen.word[j], half[j / 2].word[j % 2 * 2], half[j / 2].word[j % 2 * 2 + 1]);
      }
      // Of eight neighbouring lanes on one row every other four begin with the upper half, so that
      // they meet no bank twice; a row of four pieces has its neighbour's pieces beside its own.
      const bool upper_first = kPieces > 4 && Lane() / 4 % 2 != 0;
      const int piece = 2 * (i % kPieces);
      unsigned char* to = SharedMemory() + kQBytes;
      Store16(to + Rows::Swizzled(row, piece + (upper_first ? 1 : 0)),
              upper_first ? half[1] : half[0]);
      Store16(to + Rows::Swizzled(row, piece + (upper_first ? 0 : 1)),
              upper_first ? half[0] : half[1]);
    }
    const auto* scales = Shared<float>(kScalesAt) + slot * kScales;
    auto* factors = Shared<float>(kFactorsAt);
    for (int i = ThreadIndex(); i < kScales; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i % kAttentionKeys;
      // A scale before the window may be anything.
      const float scale = IsSeen(key) ? scales[i] : 0.0f;
      factors[i] = i < kAttentionKeys ? scale * params.scale : scale;
    }
  }
};

}  // namespace quire::kernels::cuda
