#include "kernels/cuda/ops/moe/grouped_product.h"

#include "kernels/cuda/ops/gemm/gemm_tile.h"
#include "kernels/cuda/ops/moe/grouped_kernels.h"

namespace quire::kernels::cuda {
namespace {

GemmKernel KernelOf(const QuantisedWeight& weight, int tile_rows) {
  if (weight.data == nullptr) return ExpertKernelFloats(tile_rows);
  switch (weight.form) {
    case QuantForm::kGrouped:
      return weight.bits == 4 ? ExpertKernelGrouped4(tile_rows) : ExpertKernelGrouped8(tile_rows);
    case QuantForm::kTable:
      return ExpertKernelTable4(tile_rows);
    case QuantForm::kFloats:
      return ExpertKernelFloats4(tile_rows);
    case QuantForm::kE4m3:
      return ExpertKernelE4m3(tile_rows);
    default:
      break;
  }
  if (weight.bits == 4) return ExpertKernel4(tile_rows);
  if (weight.bits == 5) return ExpertKernel5(tile_rows);
  return weight.bits == 6 ? ExpertKernel6(tile_rows) : ExpertKernel8(tile_rows);
}

int Ceil(int a, int b) { return (a + b - 1) / b; }

}  // namespace

// For twice the mean: most experts have one tile then, and read their weights once.
int ExpertTileRows(int pairs, int experts) {
  const int rows = 2 * Ceil(pairs, experts);
  return rows <= 8 ? 8 : rows <= 64 ? 32 : 128;
}

runtime::Error LaunchGroupedProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                                    const GroupedParams& params, int tile_rows, int most_tiles) {
  GroupedParams all = params;
  GemmParams& product = all.product;
  if (product.n <= 0 || product.k <= 0 || product.n % 8 != 0 || product.k % 8 != 0) {
    return "experts: weights [" + std::to_string(product.n) + ", " + std::to_string(product.k) +
           "]: multiples of 8 are needed";
  }
  if (product.out_stride == 0) product.out_stride = product.n;
  if (product.out_stride < product.n || product.out_stride % 8 != 0) {
    return "experts: rows of the result " + std::to_string(product.out_stride) +
           " apart: a multiple of 8 from " + std::to_string(product.n) + " on is needed";
  }
  const QuantisedWeight& quantised = product.quantised;
  if (quantised.data != nullptr && product.k % quantised.block_elements != 0) {
    return "experts: quantised rows of " + std::to_string(product.k) + ": whole blocks of " +
           std::to_string(quantised.block_elements) + " are needed";
  }
  if (IsByCodes(quantised.form)) return "experts: codes of rows have no kernel";
  if (tile_rows != 8 && tile_rows != 32 && tile_rows != 128) {
    return "experts: tiles of 8, 32 or 128 rows are served";
  }
  if (most_tiles <= 0) return {};
  const GemmKernel choice = KernelOf(quantised, tile_rows);
  product.splits = GemmSplits(product.whole_n > 0 ? product.whole_n : product.n, product.k);
  product.tiles_per_split = Ceil(Ceil(product.k, kGemmDepth), product.splits);
  return runtime.Launch(stream, choice.kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(most_tiles),
                                         static_cast<uint32_t>(Ceil(product.n, kGemmRows)),
                                         choice.shared_bytes, all));
}

}  // namespace quire::kernels::cuda
