#include "kernels/cuda/ops/gemm.h"

#include <algorithm>

#include "kernels/cuda/ops/gemm_tile.h"
#include "kernels/cuda/ops/soft_cap.h"

namespace quire::kernels::cuda {

// Sums tiles [first, last) of K from zero through the ring.
template <class Tile>
QUIRE_DEVICE void SumPiece(const GemmParams& params, int first, int last, Tile& tile) {
  const int first_row = BlockY() * kGemmRows;
  const int first_token = BlockX() * Tile::kTokens;
  tile.Clear();
#pragma unroll
  for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
    if (first + ahead < last) Tile::Fill(params, ahead, first + ahead, first_row, first_token);
    AsyncCommit();
  }
  int slot = 0;
  for (int at = first; at < last; ++at) {
    AsyncWait<Tile::kStages - 2>();
    // Everyone's copies of this stage are here, and everyone is done with the stage before it,
    // which is the one that is filled next.
    BlockBarrier();
    const int next = at + Tile::kStages - 1;
    const int filled = slot == 0 ? Tile::kStages - 1 : slot - 1;
    if (next < last) Tile::Fill(params, filled, next, first_row, first_token);
    AsyncCommit();
    tile.Multiply(slot);
    slot = slot + 1 == Tile::kStages ? 0 : slot + 1;
  }
  AsyncWait<0>();
  BlockBarrier();
}

// A piece's sums in the workspace: [tile][piece][vector][thread], so that threads lie side by side.
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
      Store16(
          to + (r * Tile::kOctets + o) * kGemmThreads * 4,
          Vector16{{BitsOfFloat(s[0]), BitsOfFloat(s[1]), BitsOfFloat(s[2]), BitsOfFloat(s[3])}});
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

// What is done to eight neighbours of one row of the result, in the order of gemm.h.
QUIRE_DEVICE void Finish8(const GemmParams& params, int row, float (&y)[8]) {
  if (params.bias != nullptr) {
    const Vector16 bias = Load16(params.bias + row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = y[2 * i] + LowBf16(bias.word[i]);
      y[2 * i + 1] = y[2 * i + 1] + HighBf16(bias.word[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y[i] = y[i] * params.scale;
    if (params.softcap > 0.0f) y[i] = SoftCap(y[i], params.softcap);
    if (params.relu) y[i] = y[i] > 0.0f ? y[i] : 0.0f;
  }
}

QUIRE_DEVICE void StoreFloats(float* out, bool accumulate, const float* y) {
#pragma unroll
  for (int half = 0; half < 8; half += 4) {
    float z[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] = y[half + i];
    if (accumulate) {
      const Vector16 there = Load16(out + half);
#pragma unroll
      for (int i = 0; i < 4; ++i) z[i] = FloatOfBits(there.word[i]) + z[i];
    }
    Store16(out + half,
            Vector16{{BitsOfFloat(z[0]), BitsOfFloat(z[1]), BitsOfFloat(z[2]), BitsOfFloat(z[3])}});
  }
}

QUIRE_DEVICE void StoreBf16(uint16_t* out, bool accumulate, const float* y) {
  Vector16 there{{0, 0, 0, 0}};
  if (accumulate) there = Load16(out);
  Vector16 z;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    z.word[i] = accumulate ? PackBf16(LowBf16(there.word[i]) + y[2 * i],
                                      HighBf16(there.word[i]) + y[2 * i + 1])
                           : PackBf16(y[2 * i], y[2 * i + 1]);
  }
  Store16(out, z);
}

// Eight neighbours of one row of the result, in its type. Every other four lanes read their upper
// half first, so that eight lanes meet no bank twice.
QUIRE_DEVICE void StoreOut(const GemmParams& params, int token, int row, const float* from) {
  float y[8];
  const bool upper_first = Lane() / 4 % 2 != 0;
  const Vector16 first = Load16(from + (upper_first ? 4 : 0));
  const Vector16 second = Load16(from + (upper_first ? 0 : 4));
  const Vector16 low = upper_first ? second : first;
  const Vector16 high = upper_first ? first : second;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = FloatOfBits(low.word[i]);
    y[i + 4] = FloatOfBits(high.word[i]);
  }
  Finish8(params, row, y);
  const size_t at = static_cast<size_t>(token) * params.n + row;
  if (params.out_float32) {
    StoreFloats(static_cast<float*>(params.out) + at, params.accumulate, y);
  } else {
    StoreBf16(static_cast<uint16_t*>(params.out) + at, params.accumulate, y);
  }
}

// The sums of a tile, turned to [token][weight] through shared memory.
template <class Tile>
QUIRE_DEVICE void Finish(const GemmParams& params, const Tile& tile) {
  float* turned = Shared<float>();
  const int row = WarpIndex() % Tile::kRowWarps * Tile::kRowFragments * 16 + Lane() / 4;
  const int token = WarpIndex() / Tile::kRowWarps * Tile::kOctets * 8 + Lane() % 4 * 2;
#pragma unroll
  for (int r = 0; r < Tile::kRowFragments; ++r) {
#pragma unroll
    for (int o = 0; o < Tile::kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        turned[(token + 8 * o + i % 2) * Tile::kOutStride + row + 16 * r + i / 2 * 8] =
            tile.sum[r][o][i];
      }
    }
  }
  BlockBarrier();
  for (int i = ThreadIndex(); i < Tile::kTokens * kGemmRows / 8; i += kGemmThreads) {
    const int local_token = i / (kGemmRows / 8);
    const int local_row = i % (kGemmRows / 8) * 8;
    const int at_token = BlockX() * Tile::kTokens + local_token;
    const int at_row = BlockY() * kGemmRows + local_row;
    if (at_token < params.m && at_row < params.n) {
      StoreOut(params, at_token, at_row, turned + local_token * Tile::kOutStride + local_row);
    }
  }
}

template <class Tile>
QUIRE_DEVICE void Gemm(const GemmParams& params) {
  const int tiles = (params.k + kGemmDepth - 1) / kGemmDepth;
  const bool apart = GridZ() > 1;
  const int first_piece = apart ? BlockZ() : 0;
  const int last_piece = apart ? BlockZ() + 1 : params.splits;
  Tile tile;
  Tile total;
  for (int piece = first_piece; piece < last_piece; ++piece) {
    const int first = piece * params.tiles_per_split;
    const int last = first + params.tiles_per_split;
    SumPiece(params, first, last < tiles ? last : tiles, tile);
    if (piece == first_piece) {
      total = tile;
    } else {
      total.Add(tile);
    }
  }
  if (apart) {
    StorePiece(params, BlockZ(), total);
    uint32_t* counter = params.counters + static_cast<size_t>(BlockY()) * GridX() + BlockX();
    auto* flag = Shared<uint32_t>(Tile::kSharedBytes - 16);
    if (!LastToArrive(counter, static_cast<uint32_t>(GridZ()), flag)) return;
    LoadPiece(params, 0, total);
    for (int piece = 1; piece < params.splits; ++piece) {
      LoadPiece(params, piece, tile);
      total.Add(tile);
    }
  }
  Finish(params, total);
}

using Tile8 = GemmTile<8, 5>;
using Tile16 = GemmTile<16, 5>;
using Tile32 = GemmTile<32, 4>;
using Tile64 = GemmTile<64, 4>;
using Tile128 = GemmTile<128, 4>;

QUIRE_KERNEL(gemm_8, GemmParams, kGemmThreads, 2) { Gemm<Tile8>(params); }
QUIRE_KERNEL(gemm_16, GemmParams, kGemmThreads, 2) { Gemm<Tile16>(params); }
QUIRE_KERNEL(gemm_32, GemmParams, kGemmThreads, 2) { Gemm<Tile32>(params); }
QUIRE_KERNEL(gemm_64, GemmParams, kGemmThreads, 2) { Gemm<Tile64>(params); }
QUIRE_KERNEL(gemm_128, GemmParams, kGemmThreads, 1) { Gemm<Tile128>(params); }

namespace {

constexpr int kMaxSplits = 8;
constexpr int kShortestPiece = 512;  // of K

struct Choice {
  runtime::KernelHandle kernel;
  int tokens;
  uint32_t shared_bytes;
};

template <class Tile>
Choice ChoiceOf(runtime::KernelHandle kernel) {
  return {kernel, Tile::kTokens, Tile::kSharedBytes};
}

Choice Choose(int m) {
  if (m <= 8) return ChoiceOf<Tile8>(QUIRE_KERNEL_OF(gemm_8, kGemmThreads));
  if (m <= 16) return ChoiceOf<Tile16>(QUIRE_KERNEL_OF(gemm_16, kGemmThreads));
  if (m <= 32) return ChoiceOf<Tile32>(QUIRE_KERNEL_OF(gemm_32, kGemmThreads));
  if (m <= 64) return ChoiceOf<Tile64>(QUIRE_KERNEL_OF(gemm_64, kGemmThreads));
  return ChoiceOf<Tile128>(QUIRE_KERNEL_OF(gemm_128, kGemmThreads));
}

int Ceil(int a, int b) { return (a + b - 1) / b; }

// Pieces get blocks of their own while tiles alone would leave multiprocessors idle.
bool Apart(int m, int n, int multiprocessors) {
  return Ceil(m, Choose(m).tokens) * Ceil(n, kGemmRows) < multiprocessors;
}

}  // namespace

int GemmSplits(int n, int k) {
  const int tiles = Ceil(k, kGemmDepth);
  const int wanted = std::clamp(kGemmMultiprocessors / Ceil(n, kGemmRows), 1, kMaxSplits);
  const int splits = std::clamp(k / kShortestPiece, 1, wanted);
  return Ceil(tiles, Ceil(tiles, splits));  // no piece is empty
}

size_t GemmWorkspaceBytes(int m, int n, int k) {
  if (GemmSplits(n, k) == 1 || !Apart(m, n, kGemmMultiprocessors)) return 0;
  const size_t tokens = static_cast<size_t>(Choose(m).tokens);
  return GemmCounters(m, n) * GemmSplits(n, k) * tokens * kGemmRows * sizeof(float);
}

size_t GemmCounters(int m, int n) {
  return static_cast<size_t>(Ceil(m, Choose(m).tokens)) * Ceil(n, kGemmRows);
}

runtime::Error LaunchGemm(runtime::Runtime& runtime, runtime::StreamId stream, GemmParams params) {
  if (params.n <= 0 || params.k <= 0 || params.n % 8 != 0 || params.k % 8 != 0) {
    return "gemm: weights [" + std::to_string(params.n) + ", " + std::to_string(params.k) +
           "]: multiples of 8 are needed";
  }
  if (params.m <= 0) return {};
  const Choice choice = Choose(params.m);
  params.splits = GemmSplits(params.n, params.k);
  params.tiles_per_split = Ceil(Ceil(params.k, kGemmDepth), params.splits);
  runtime::LaunchShape shape = runtime::ShapeOf(
      static_cast<uint32_t>(Ceil(params.m, choice.tokens)),
      static_cast<uint32_t>(Ceil(params.n, kGemmRows)), choice.shared_bytes, params);
  if (Apart(params.m, params.n, params.multiprocessors))
    shape.grid_z = static_cast<uint32_t>(params.splits);
  return runtime.Launch(stream, choice.kernel, shape);
}

}  // namespace quire::kernels::cuda
