// One warp's part of sixteen rows that several warps share: some keys' scores, and some columns of
// the output. Attention over latents and over wide heads is made of it.
//
// Rows of shared memory hold kDim elements, permuted as AttentionRows' are; the first kValues are a
// value. A warp of kColumnWarps scores its keys of the tile; all of them read all scores, weigh
// them alike, and add up values, each its own columns.
#pragma once

#include "kernels/cuda/ops/attention/attention_tile.h"
#include "kernels/cuda/ops/fp8.h"

namespace quire::kernels::cuda {

template <int kDim, int kValues, int kColumnWarps, KvType kType>
struct SharedRows : AttentionRows<kValues / kColumnWarps, kType> {
  using Base = AttentionRows<kValues / kColumnWarps, kType>;
  using Base::kOctets;
  static constexpr int kPieces = kDim / 8;
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kKeyOctets = 8 / kColumnWarps;      // that a warp scores
  static constexpr int kScoreStride = kAttentionKeys + 8;  // floats: the eight spread the banks
  static constexpr int kMergeOctets = kOctets < 8 ? kOctets : 8;

  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kRowBytes + (piece ^ (row & 7)) * 16;
  }

  // Sixteen codes of a row of head_dim, or zeros, as two pieces of bfloat16. Of eight lanes that
  // store together four begin with the piece that falls on the other half of the banks.
  QUIRE_DEVICE static void Widen(unsigned char* tile, int row, int sixteen, int head_dim,
                                 const unsigned char* from) {
    Vector16 codes{{0, 0, 0, 0}};
    if (from != nullptr) codes = Load16(from);
    if (head_dim - 16 * sixteen < 16) codes.word[2] = codes.word[3] = 0;
    Vector16 half[2];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      WidenFp8(codes.word[j], half[j / 2].word[j % 2 * 2], half[j / 2].word[j % 2 * 2 + 1]);
    }
    const bool upper_first = (Lane() / 4 % 2 != 0) != (row % 2 != 0);
    Store16(tile + Swizzled(row, 2 * sixteen + (upper_first ? 1 : 0)),
            upper_first ? half[1] : half[0]);
    Store16(tile + Swizzled(row, 2 * sixteen + (upper_first ? 0 : 1)),
            upper_first ? half[0] : half[1]);
  }

  // The scores of keys 8 · first … of the tile, in the order of attention, to `scores`, [16][keys].
  QUIRE_DEVICE static void Scores(const unsigned char* q, const unsigned char* keys, int first,
                                  float* scores) {
    const int lane = Lane();
    float score[kKeyOctets][4];
    ScoreKeys<SharedRows>(q, keys, first, score);
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
  QUIRE_DEVICE void AddValues(const unsigned char* keys, int first, const float* factors,
                              const float (&weight)[8][4]) {
    Base::AddValuesAt(factors, weight, [keys, first](int key, int octet) {
      return keys + Swizzled(key, first + octet);
    });
  }
};

// Copies the rows of one tile from their pages to `to`: keys, values or latents, as `from` says;
// zeros for keys that no row sees, and after the row's end. Codes of fp8 are widened on their way.
template <class Tile>
QUIRE_DEVICE void CopySharedTile(const Tile& tile, const void* from, int key_tile,
                                 unsigned char* to) {
  using Rows = typename Tile::Rows;
  constexpr int kOfRow = Tile::kFp8 ? Rows::kPieces / 2 : Rows::kPieces;
  static_assert(kAttentionKeys * kOfRow % Tile::kThreads == 0);  // lanes meet in each round
  const auto& params = tile.params;
  const uint32_t pages = tile.PageOfLane(key_tile);
#pragma unroll 1
  for (int i = ThreadIndex(); i < kAttentionKeys * kOfRow; i += Tile::kThreads) {
    const int row = i / kOfRow;
    const int piece = i % kOfRow;
    const int key = key_tile * kAttentionKeys + row;
    const uint32_t page = Shuffle(pages, row >> params.block_shift);
    const int element = piece * (Tile::kFp8 ? 16 : 8);
    const bool seen = tile.IsSeen(key) && element < params.head_dim;
    const int64_t at = seen ? tile.ElementAt(page, key) + element : 0;
    if constexpr (Tile::kFp8) {
      const auto* codes = static_cast<const unsigned char*>(from) + at;
      Rows::Widen(to, row, piece, params.head_dim, seen ? codes : nullptr);
    } else {
      AsyncCopy16(to + Rows::Swizzled(row, piece), static_cast<const uint16_t*>(from) + at,
                  seen ? 16 : 0);
    }
  }
}

}  // namespace quire::kernels::cuda
