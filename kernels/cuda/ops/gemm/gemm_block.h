// The block of a GEMM: pieces of K through the ring, their merge, and the operations on the result.
//
// A Tile is GemmTile, or one that reads its weights differently and multiplies the same fragments.
#pragma once

#include "kernels/cuda/ops/gemm/gemm_result.h"

namespace quire::kernels::cuda {

// Starts the copies of the first stages. No kernel writes weights: where few rows are multiplied,
// and weights are nearly all that is read, they are on their way before the kernels in front of
// this one have ended. A wide tile begins stage by stage: its first product waits for one alone.
template <class Tile>
QUIRE_DEVICE void BeginRing(const GemmParams& params, int last, const GemmCorner& corner,
                            bool first_piece) {
  constexpr bool kWeightsAhead = Tile::kTokens <= 64;
  if (kWeightsAhead) {
#pragma unroll
    for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
      if (corner.tile + ahead < last) Tile::FillWeights(params, ahead, corner.tile + ahead, corner);
    }
  }
  if (first_piece) {
    WaitForEarlierKernels();
    LetLaterKernelsBegin();
  }
#pragma unroll
  for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
    const int tile = corner.tile + ahead;
    if (tile < last) {
      if (!kWeightsAhead) Tile::FillWeights(params, ahead, tile, corner);
      Tile::FillTokens(params, ahead, tile, corner);
    }
    AsyncCommit();
  }
}

// Sums tiles [first, last) of K from zero through the ring.
template <class Tile>
QUIRE_DEVICE void SumPiece(const GemmParams& params, int first, int last, bool first_piece,
                           Tile& tile) {
  const GemmCorner corner{BlockY() * kGemmRows, BlockX() * Tile::kTokens, first};
  tile.Clear();
  BeginRing<Tile>(params, last, corner, first_piece);
  int slot = 0;
  for (int at = first; at < last; ++at) {
    AsyncWait<Tile::kStages - 2>();
    // All copies of this stage have arrived, and all threads have finished the stage before it,
    // which is filled next.
    BlockBarrier();
    const int next = at + Tile::kStages - 1;
    const int filled = slot == 0 ? Tile::kStages - 1 : slot - 1;
    if (next < last) {
      Tile::FillWeights(params, filled, next, corner);
      Tile::FillTokens(params, filled, next, corner);
    }
    AsyncCommit();
    tile.Multiply(params, slot, at);
    slot = slot + 1 == Tile::kStages ? 0 : slot + 1;
  }
  AsyncWait<0>();
  BlockBarrier();
}

// A piece's sums in the workspace: [tile][piece][vector][thread], so that threads are side by side.
template <class Tile>
QUIRE_DEVICE float* PieceAt(const GemmParams& params, int piece) {
  constexpr int kFloats = Tile::kTokens * kGemmRows;
  const size_t tile = static_cast<size_t>(BlockY()) * GridX() + BlockX();
  return params.workspace + (tile * params.splits + piece) * kFloats + ThreadIndex() * 4;
}

template <class Tile>
QUIRE_DEVICE void StorePiece(const GemmParams& params, int piece, const Tile& tile) {
  float* to = PieceAt<Tile>(params, piece);
#pragma unroll
  for (int r = 0; r < Tile::kRowFragments; ++r) {
#pragma unroll
    for (int o = 0; o < Tile::kOctets; ++o) {
      const float(&s)[4] = tile.sum[r][o];
      // The analyser does not see that each block sums a piece.
      const Vector16 four{{BitsOfFloat(s[0]), BitsOfFloat(s[1]),    // NOLINT
                           BitsOfFloat(s[2]), BitsOfFloat(s[3])}};  // NOLINT
      Store16(to + (r * Tile::kOctets + o) * kGemmThreads * 4, four);
    }
  }
}

template <class Tile>
QUIRE_DEVICE void LoadPiece(const GemmParams& params, int piece, Tile& tile) {
  const float* from = PieceAt<Tile>(params, piece);
#pragma unroll
  for (int r = 0; r < Tile::kRowFragments; ++r) {
#pragma unroll
    for (int o = 0; o < Tile::kOctets; ++o) {
      const Vector16 v = Load16(from + (r * Tile::kOctets + o) * kGemmThreads * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) tile.sum[r][o][i] = FloatOfBits(v.word[i]);
    }
  }
}

// The sums of a tile, turned to [token][weight] through shared memory.
template <class Tile>
QUIRE_DEVICE const float* Turn(const Tile& tile) {
  float* turned = Shared<float>();
  const int row = WarpIndex() % Tile::kRowWarps * Tile::kRowFragments * 16 + Lane() / 4;
  const int token = WarpIndex() / Tile::kRowWarps * Tile::kOctets * 8 + Lane() % 4 * 2;
#pragma unroll
  for (int r = 0; r < Tile::kRowFragments; ++r) {
#pragma unroll
    for (int o = 0; o < Tile::kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (token + 8 * o + i % 2) * Tile::kOutStride + row + 16 * r + i / 2 * 8;
        turned[at] = tile.sum[r][o][i];  // NOLINT: each block sums a piece
      }
    }
  }
  BlockBarrier();
  return turned;
}

template <class Tile>
QUIRE_DEVICE void Finish(const GemmParams& params, const Tile& tile) {
  const float* turned = Turn(tile);
  if (params.out_float32) {
    StoreTile<Tile::kTokens, Tile::kOutStride, 4>(params, turned);
  } else {
    StoreTile<Tile::kTokens, Tile::kOutStride, 8>(params, turned);
  }
}

// Pieces [first, last) of K. `ahead`: the kernel has not waited for earlier ones yet.
struct GemmPieces {
  int first;
  int last;
  bool ahead;
};

// Sums each piece from zero, and adds them in their order.
template <class Tile>
QUIRE_DEVICE void SumPieces(const GemmParams& params, const GemmPieces& pieces, Tile& tile,
                            Tile& total) {
  const int tiles = (params.k + kGemmDepth - 1) / kGemmDepth;
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    const bool first = piece == pieces.first;
    const int begin = piece * params.tiles_per_split;
    const int end = begin + params.tiles_per_split;
    SumPiece(params, begin, end < tiles ? end : tiles, pieces.ahead && first, tile);
    if (first) {
      total = tile;
    } else {
      total.Add(tile);
    }
  }
}

// Where each piece has a block along z: stores this one's; the last to arrive adds all of them in
// their order. False: another block does that. A word of shared memory at `flag_at` is free.
template <class Tile>
QUIRE_DEVICE bool MergePieces(const GemmParams& params, int flag_at, Tile& tile, Tile& total) {
  StorePiece(params, BlockZ(), total);
  uint32_t* counter = params.counters + static_cast<size_t>(BlockY()) * GridX() + BlockX();
  if (!LastToArrive(counter, static_cast<uint32_t>(GridZ()), Shared<uint32_t>(flag_at))) {
    return false;
  }
  LoadPiece(params, 0, total);
  for (int piece = 1; piece < params.splits; ++piece) {
    LoadPiece(params, piece, tile);
    total.Add(tile);
  }
  return true;
}

template <class Tile>
QUIRE_DEVICE void Gemm(const GemmParams& params) {
  const bool apart = GridZ() > 1;
  const int first = apart ? BlockZ() : 0;
  Tile tile;
  Tile total;
  SumPieces(params, {first, apart ? first + 1 : params.splits, true}, tile, total);
  if (apart && !MergePieces(params, Tile::kSharedBytes - 16, tile, total)) return;
  total.Settle(params);
  Finish(params, total);
}

}  // namespace quire::kernels::cuda
