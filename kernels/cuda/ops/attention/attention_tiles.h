// Tiles of keys and values in a block's shared memory, loaded from their pages.
//
// For heads up to 128 there is room for two tiles: the next one is copied while one is multiplied.
// For wider ones there is room for the keys of one and the values of one, on every device (kTurns):
// values are copied while keys are multiplied, and the other way round.
//
// Pages of fp8 are copied unchanged, and widened to bfloat16 in shared memory when their turn
// comes: a tile of keys and values, or with kTurns keys and then values in the same place.
#pragma once

#include "kernels/cuda/ops/attention/attention_queries.h"

namespace quire::kernels::cuda {

// The part of a tile: keys, values, or both.
enum class TilePart : int { kKeys = 1, kValues = 2, kBoth = 3 };

template <int kHeadDim, int kWarps, KvType kType>
struct AttentionTiles : AttentionQueries<kHeadDim, kWarps, kType> {
  using Queries = AttentionQueries<kHeadDim, kWarps, kType>;
  using Queries::ElementAt, Queries::IsOfHead, Queries::IsSeen, Queries::PageOfLane,
      Queries::kQBytes, Queries::kThreads, Queries::first_key, Queries::last_key, Queries::params;
  using typename Queries::Rows;

  static constexpr bool kFp8 = kType == KvType::kFp8;
  static constexpr bool kTurns = kHeadDim > 128;
  static constexpr int kSlots = kTurns ? 1 : 2;
  static constexpr int kTileBytes = kAttentionKeys * Rows::kRowBytes;  // of keys, or of values
  // For fp8: codes after the operands of the product, then [slot][keys, values] scales and the
  // factors of scores and weights.
  static constexpr int kCodeBytes = kAttentionKeys * kHeadDim;  // of keys, or of values
  static constexpr int kCodesAt = kQBytes + (kTurns ? 1 : 2) * kTileBytes;
  static constexpr int kScalesAt =
      kFp8 ? kCodesAt + kSlots * 2 * kCodeBytes : kQBytes + kSlots * 2 * kTileBytes;
  static constexpr int kScales = 2 * kAttentionKeys;  // of a tile
  static constexpr int kFactorsAt = kScalesAt + kSlots * kScales * 4;
  static constexpr int kScaleBytes = kFp8 ? (kSlots + 1) * kScales * 4 : 0;
  static constexpr int kSharedBytes = kScalesAt + kScaleBytes + 16;
  static_assert(kSharedBytes <= runtime::kLeastSharedBytes);

  QUIRE_DEVICE explicit AttentionTiles(const AttentionParams& p) : Queries(p) {}

  QUIRE_DEVICE static constexpr bool Has(TilePart part, TilePart wanted) {
    return (static_cast<int>(part) & static_cast<int>(wanted)) != 0;
  }

  // Where products find the keys of slot `slot`; values follow where there is room for both.
  QUIRE_DEVICE static unsigned char* Multiplied(int slot) {
    return SharedMemory() + kQBytes + (kFp8 ? 0 : slot * 2 * kTileBytes);
  }
  QUIRE_DEVICE static unsigned char* Codes(int slot, bool values) {
    return SharedMemory() + kCodesAt + (2 * slot + (values ? 1 : 0)) * kCodeBytes;
  }

  // The keys and values of one tile; zeros for keys that no row sees.
  template <TilePart kPart = TilePart::kBoth>
  QUIRE_DEVICE void CopyTile(int slot, int key_tile) const {
    if constexpr (kFp8) {
      CopyCodes<kPart>(slot, key_tile);
    } else {
      CopyElements<kPart>(slot, key_tile);
    }
  }
  template <TilePart kPart>
  QUIRE_DEVICE void CopyElements(int slot, int key_tile) const {
    unsigned char* to = Multiplied(slot);
    const uint32_t pages = PageOfLane(key_tile);
    // Every thread makes the same number of rounds: lanes meet in each to learn their page.
#pragma unroll 1
    for (int i = ThreadIndex(); i < kAttentionKeys * Rows::kPieces; i += kThreads) {
      const int row = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const int key = key_tile * kAttentionKeys + row;
      const uint32_t page = Shuffle(pages, row >> params.block_shift);
      const bool seen = IsSeen(key) && IsOfHead(piece);
      const int64_t at = seen ? ElementAt(page, key) + 8 * piece : 0;
      const int place = Rows::Swizzled(row, piece);
      if constexpr (Has(kPart, TilePart::kKeys)) {
        AsyncCopy16(to + place, static_cast<const uint16_t*>(params.keys) + at, seen ? 16 : 0);
      }
      if constexpr (Has(kPart, TilePart::kValues)) {
        AsyncCopy16(to + kTileBytes + place, static_cast<const uint16_t*>(params.values) + at,
                    seen ? 16 : 0);
      }
    }
  }

  // The codes and scales of one tile; zeros for keys that no row sees, and after the head.
  template <TilePart kPart>
  QUIRE_DEVICE void CopyCodes(int slot, int key_tile) const {
    constexpr int kPieces = kHeadDim / 16;
    const uint32_t pages = PageOfLane(key_tile);
#pragma unroll 1
    for (int i = ThreadIndex(); i < kAttentionKeys * kPieces; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i / kPieces;
      const int first = i % kPieces * 16;
      const uint32_t page = Shuffle(pages, i / kPieces >> params.block_shift);
      const int left = IsSeen(key) ? params.head_dim - first : 0;
      const int valid = left < 0 ? 0 : left < 16 ? left : 16;
      const int64_t at = valid > 0 ? ElementAt(page, key) + first : 0;
      if constexpr (Has(kPart, TilePart::kKeys)) {
        AsyncCopy16(Codes(slot, false) + 16 * i,
                    static_cast<const unsigned char*>(params.keys) + at, valid);
      }
      if constexpr (Has(kPart, TilePart::kValues)) {
        AsyncCopy16(Codes(slot, true) + 16 * i,
                    static_cast<const unsigned char*>(params.values) + at, valid);
      }
    }
    if (WarpIndex() == 0) CopyScales<kPart>(slot, key_tile, pages);
  }

  // Each lane of a warp those of four keys, or four values.
  template <TilePart kPart>
  QUIRE_DEVICE void CopyScales(int slot, int key_tile, uint32_t pages) const {
    const int four = Lane() % 16 * 4;
    const int key = key_tile * kAttentionKeys + four;
    const uint32_t page = Shuffle(pages, four >> params.block_shift);
    if (!Has(kPart, Lane() < 16 ? TilePart::kKeys : TilePart::kValues)) return;
    int valid = last_key - key + 1 < 4 ? 4 * (last_key - key + 1) : 16;
    if (key + 3 < first_key || valid < 0) valid = 0;
    const float* from = Lane() < 16 ? params.key_scales : params.value_scales;
    if (valid > 0) {
      from += page * params.scale_page_stride + (BlockY() << params.block_shift) +
              (key & ((1 << params.block_shift) - 1));
    }
    AsyncCopy16(SharedMemory() + kScalesAt + (slot * kScales + Lane() * 4) * 4, from, valid);
  }

  // Makes the content of slot `slot` the operand of the next product.
  template <TilePart kPart = TilePart::kBoth>
  QUIRE_DEVICE void Widen(int slot, int key_tile) const {
    constexpr int kPieces = kHeadDim / 16;
    constexpr int kRows = (kPart == TilePart::kBoth ? 2 : 1) * kAttentionKeys;
    constexpr bool kValuesAlone = kPart == TilePart::kValues;
    const unsigned char* codes = Codes(slot, kValuesAlone);
#pragma unroll 1
    for (int i = ThreadIndex(); i < kRows * kPieces; i += kThreads) {
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
      unsigned char* to = Multiplied(0);
      Store16(to + Rows::Swizzled(row, piece + (upper_first ? 1 : 0)),
              upper_first ? half[1] : half[0]);
      Store16(to + Rows::Swizzled(row, piece + (upper_first ? 0 : 1)),
              upper_first ? half[0] : half[1]);
    }
    constexpr int kFirst = kValuesAlone ? kAttentionKeys : 0;
    const auto* scales = Shared<float>(kScalesAt) + slot * kScales;
    auto* factors = Shared<float>(kFactorsAt);
    for (int i = kFirst + ThreadIndex(); i < kFirst + kRows; i += kThreads) {
      const int key = key_tile * kAttentionKeys + i % kAttentionKeys;
      // The scale of a key before the window is arbitrary.
      const float scale = IsSeen(key) ? scales[i] : 0.0f;
      factors[i] = i < kAttentionKeys ? scale * params.scale : scale;
    }
  }
};

}  // namespace quire::kernels::cuda
