#include "kernels/cuda/ops/lora/adapter_product.h"

#include "kernels/cuda/ops/moe/grouped_block.h"

namespace quire::kernels::cuda {

using AdapterFew = GemmTile<8, 5>;
using AdapterSome = GemmTile<32, 4>;
using AdapterMany = GemmTile<128, 3>;

// Blocks along z: slices, where there are several; else pieces of K.
template <class OneTile>
QUIRE_DEVICE void AdapterProduct(const AdapterProductParams& params) {
  using Tile = GroupedTile<OneTile>;
  WaitForEarlierKernels();
  LetLaterKernelsBegin();
  if (BlockX() >= *params.tile_count) return;
  const ExpertTile own = params.tiles[BlockX()];
  GemmParams product = params.product;
  product.weight += own.expert * (params.slot_bytes / 2);
  if (params.slices > 1) {
    product.x += BlockZ() * product.k;
    product.weight += static_cast<int64_t>(BlockZ()) * product.n * product.k;
    product.out = static_cast<float*>(product.out) + BlockZ() * product.n;
  }
  Tile::ReadRows({params.tokens + own.first, own.rows, 1, params.x_stride});
  const bool apart = params.slices == 1 && GridZ() > 1;
  const int first = apart ? BlockZ() : 0;
  Tile tile;
  Tile total;
  SumPieces(product, {first, apart ? first + 1 : product.splits, false}, tile, total);
  if (apart && !MergePieces(product, Tile::kRowsAt - 16, tile, total)) return;
  FinishPairs(product, params.tokens + own.first, own.rows, total);
}

QUIRE_KERNEL_AHEAD(adapter_8, AdapterProductParams, kGemmThreads, 2) {
  AdapterProduct<AdapterFew>(params);
}
QUIRE_KERNEL_AHEAD(adapter_32, AdapterProductParams, kGemmThreads, 2) {
  AdapterProduct<AdapterSome>(params);
}
QUIRE_KERNEL_AHEAD(adapter_128, AdapterProductParams, kGemmThreads, 1) {
  AdapterProduct<AdapterMany>(params);
}

namespace {

constexpr int kMostRowsApart = 32;  // wider tiles are for steps that fill the device

int Ceil(int a, int b) { return (a + b - 1) / b; }

GemmKernel KernelOf(int tile_rows) {
  if (tile_rows == 8) return GroupedKernelOf<AdapterFew>(QUIRE_KERNEL_OF(adapter_8, kGemmThreads));
  if (tile_rows == 32)
    return GroupedKernelOf<AdapterSome>(QUIRE_KERNEL_OF(adapter_32, kGemmThreads));
  return GroupedKernelOf<AdapterMany>(QUIRE_KERNEL_OF(adapter_128, kGemmThreads));
}

runtime::Error CheckShape(const AdapterProductParams& params, int tile_rows) {
  const GemmParams& product = params.product;
  if (product.n <= 0 || product.k <= 0 || product.n % 8 != 0 || product.k % 8 != 0) {
    return "adapters: weights [" + std::to_string(product.n) + ", " + std::to_string(product.k) +
           "]: multiples of 8 are needed";
  }
  if (product.out_stride < params.slices * product.n || product.out_stride % 8 != 0) {
    return "adapters: rows of the result " + std::to_string(product.out_stride) +
           " apart: a multiple of 8 from " + std::to_string(params.slices * product.n) +
           " on is needed";
  }
  if (params.x_stride < params.slices * product.k || params.x_stride % 8 != 0) {
    return "adapters: rows " + std::to_string(params.x_stride) + " apart: a multiple of 8 from " +
           std::to_string(params.slices * product.k) + " on is needed";
  }
  if (tile_rows != 8 && tile_rows != 32 && tile_rows != 128) {
    return "adapters: tiles of 8, 32 or 128 rows are served";
  }
  if (params.slices > 1 && !product.out_float32) return "adapters: slices are added to float32";
  return {};
}

}  // namespace

size_t AdapterWorkspaceBytes(int n, int k) {
  const int splits = GemmSplits(n, k);
  if (splits == 1) return 0;
  return size_t{kGemmMultiprocessors} * splits * kMostRowsApart * kGemmRows * sizeof(float);
}

runtime::Error LaunchAdapterProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                                    const AdapterProductParams& params, int tile_rows,
                                    int most_tiles) {
  AdapterProductParams all = params;
  GemmParams& product = all.product;
  if (runtime::Error error = CheckShape(params, tile_rows); !error.empty()) return error;
  product.splits = GemmSplits(product.n, product.k);
  product.tiles_per_split = Ceil(Ceil(product.k, kGemmDepth), product.splits);
  if (params.slices > 1 && product.splits > 1) return "adapters: slices of several pieces of K";
  if (most_tiles <= 0) return {};
  const GemmKernel choice = KernelOf(tile_rows);
  const int blocks = most_tiles * Ceil(product.n, kGemmRows);
  const bool apart = tile_rows <= kMostRowsApart && blocks < kGemmMultiprocessors;
  runtime::LaunchShape shape =
      runtime::ShapeOf(static_cast<uint32_t>(most_tiles),
                       static_cast<uint32_t>(Ceil(product.n, kGemmRows)), choice.shared_bytes, all);
  shape.grid_z = static_cast<uint32_t>(params.slices > 1 ? params.slices
                                       : apart           ? product.splits
                                                         : 1);
  return runtime.Launch(stream, choice.kernel, shape);
}

}  // namespace quire::kernels::cuda
