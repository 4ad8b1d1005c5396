#include "kernels/cuda/ops/gemm/gemm.h"

#include <algorithm>

#include "kernels/cuda/ops/gemm/gemm_block.h"
#include "kernels/cuda/ops/gemm/quantised_kernels.h"

namespace quire::kernels::cuda {

using Tile8 = GemmTile<8, 5>;
using Tile16 = GemmTile<16, 5>;
using Tile32 = GemmTile<32, 4>;
using Tile64 = GemmTile<64, 4>;
using Tile128 = GemmTile<128, 4>;
// For devices whose blocks have no room for four stages: the same sums.
using Tile128Short = GemmTile<128, 3>;

static_assert(std::max({Tile8::kSharedBytes, Tile16::kSharedBytes, Tile32::kSharedBytes,
                        Tile64::kSharedBytes, Tile128Short::kSharedBytes}) <=
              static_cast<int>(runtime::kLeastSharedBytes));

QUIRE_KERNEL_AHEAD(gemm_8, GemmParams, kGemmThreads, 2) { Gemm<Tile8>(params); }
QUIRE_KERNEL_AHEAD(gemm_16, GemmParams, kGemmThreads, 2) { Gemm<Tile16>(params); }
QUIRE_KERNEL_AHEAD(gemm_32, GemmParams, kGemmThreads, 2) { Gemm<Tile32>(params); }
QUIRE_KERNEL_AHEAD(gemm_64, GemmParams, kGemmThreads, 2) { Gemm<Tile64>(params); }
QUIRE_KERNEL_AHEAD(gemm_128, GemmParams, kGemmThreads, 1) { Gemm<Tile128>(params); }
QUIRE_KERNEL_AHEAD(gemm_128_short, GemmParams, kGemmThreads, 1) { Gemm<Tile128Short>(params); }

namespace {

constexpr int kMaxSplits = 8;
constexpr int kShortestPiece = 512;  // of K

GemmKernel QuantisedKernel(const QuantisedWeight& weight, int m) {
  switch (weight.form) {
    case QuantForm::kGrouped:
      return weight.bits == 4 ? QuantisedKernelGrouped4(m) : QuantisedKernelGrouped8(m);
    case QuantForm::kTable:
      return QuantisedKernelTable4(m);
    case QuantForm::kFloats:
      return QuantisedKernelFloats4(m);
    case QuantForm::kE4m3:
      return QuantisedKernelE4m3(m);
    case QuantForm::kInt8ByCodes:
      return QuantisedKernelInt8ByCodes(m);
    case QuantForm::kE4m3ByCodes:
      return QuantisedKernelE4m3ByCodes(m);
    case QuantForm::kBlocks:
      break;
  }
  if (weight.bits == 4) return QuantisedKernel4(m);
  if (weight.bits == 5) return QuantisedKernel5(m);
  return weight.bits == 6 ? QuantisedKernel6(m) : QuantisedKernel8(m);
}

// Tokens of a tile do not depend on `shared_bytes`, so that workspace and counters do not either.
GemmKernel FloatKernel(int m, uint32_t shared_bytes) {
  if (m <= 8) return GemmKernelOf<Tile8>(QUIRE_KERNEL_OF(gemm_8, kGemmThreads));
  if (m <= 16) return GemmKernelOf<Tile16>(QUIRE_KERNEL_OF(gemm_16, kGemmThreads));
  if (m <= 32) return GemmKernelOf<Tile32>(QUIRE_KERNEL_OF(gemm_32, kGemmThreads));
  if (m <= 64) return GemmKernelOf<Tile64>(QUIRE_KERNEL_OF(gemm_64, kGemmThreads));
  if (shared_bytes >= Tile128::kSharedBytes) {
    return GemmKernelOf<Tile128>(QUIRE_KERNEL_OF(gemm_128, kGemmThreads));
  }
  return GemmKernelOf<Tile128Short>(QUIRE_KERNEL_OF(gemm_128_short, kGemmThreads));
}

// Of quantised weights; no form has tiles of more tokens, nor pieces that take more memory.
int TokensOfTile(int m, bool quantised) {
  return quantised ? QuantisedKernel4(m).tokens : FloatKernel(m, runtime::kLeastSharedBytes).tokens;
}

int Ceil(int a, int b) { return (a + b - 1) / b; }

// Pieces get blocks of their own while tiles alone would leave multiprocessors idle.
bool Apart(int m, int n, int tokens, int multiprocessors) {
  return Ceil(m, tokens) * Ceil(n, kGemmRows) < multiprocessors;
}

}  // namespace

int GemmSplits(int n, int k) {
  const int tiles = Ceil(k, kGemmDepth);
  const int wanted = std::clamp(kGemmMultiprocessors / Ceil(n, kGemmRows), 1, kMaxSplits);
  const int splits = std::clamp(k / kShortestPiece, 1, wanted);
  return Ceil(tiles, Ceil(tiles, splits));  // no piece is empty
}

size_t GemmWorkspaceBytes(int m, int n, int k, int whole_n) {
  const int splits = GemmSplits(whole_n > 0 ? whole_n : n, k);
  if (splits == 1) return 0;
  size_t most = 0;
  for (const bool quantised : {false, true}) {
    const int tokens = TokensOfTile(m, quantised);
    if (!Apart(m, n, tokens, kGemmMultiprocessors)) continue;
    const size_t tiles = static_cast<size_t>(Ceil(m, tokens)) * Ceil(n, kGemmRows);
    most = std::max(most, tiles * splits * tokens * kGemmRows * sizeof(float));
  }
  return most;
}

size_t GemmCounters(int m, int n) {
  const int tokens = std::min(
      {TokensOfTile(m, false), TokensOfTile(m, true), QuantisedKernelE4m3ByCodes(m).tokens});
  return static_cast<size_t>(Ceil(m, tokens)) * Ceil(n, kGemmRows);
}

runtime::Error LaunchGemm(runtime::Runtime& runtime, runtime::StreamId stream, GemmParams params) {
  if (params.n <= 0 || params.k <= 0 || params.n % 8 != 0 || params.k % 8 != 0) {
    return "gemm: weights [" + std::to_string(params.n) + ", " + std::to_string(params.k) +
           "]: multiples of 8 are needed";
  }
  if (params.out_stride == 0) params.out_stride = params.n;
  if (params.out_stride < params.n || params.out_stride % 8 != 0) {
    return "gemm: rows of the result " + std::to_string(params.out_stride) +
           " apart: a multiple of 8 from " + std::to_string(params.n) + " on is needed";
  }
  if (params.quantised.data != nullptr && params.k % params.quantised.block_elements != 0) {
    return "gemm: quantised rows of " + std::to_string(params.k) + ": whole blocks of " +
           std::to_string(params.quantised.block_elements) + " are needed";
  }
  if (params.accumulate && !params.out_float32) return "gemm: sums are added to float32 alone";
  if (params.m <= 0) return {};
  const GemmKernel choice = params.quantised.data != nullptr
                                ? QuantisedKernel(params.quantised, params.m)
                                : FloatKernel(params.m, runtime.SharedBytesPerBlock());
  params.splits = GemmSplits(params.whole_n > 0 ? params.whole_n : params.n, params.k);
  params.tiles_per_split = Ceil(Ceil(params.k, kGemmDepth), params.splits);
  // Pieces begin at multiples of 128 of K, whose codes are one sum; the last may be empty.
  if (IsByCodes(params.quantised.form)) params.tiles_per_split += params.tiles_per_split % 2;
  runtime::LaunchShape shape = runtime::ShapeOf(
      static_cast<uint32_t>(Ceil(params.m, choice.tokens)),
      static_cast<uint32_t>(Ceil(params.n, kGemmRows)), choice.shared_bytes, params);
  if (Apart(params.m, params.n, choice.tokens, params.multiprocessors)) {
    shape.grid_z = static_cast<uint32_t>(params.splits);
  }
  return runtime.Launch(stream, choice.kernel, shape);
}

}  // namespace quire::kernels::cuda
