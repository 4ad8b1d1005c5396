// One product of all adapters of a step with the rows of each, as one launch: A of low-rank
// adapters over the rows of a base product, or B over what A made.
//
// For token t of the list, whose adapter is in slot a, and slice s of `slices`:
// out[t][s · n …] (+)= scale · (x[t][s · k …] · weight_{a, s}ᵀ). Pieces of K and the order of
// sums equal a plain product's (gemm.h), so a row has the bits of a product with its
// adapter's matrix alone, whatever shares its tile and however wide that is. Rows that are in no
// list are neither read nor written.
//
// Grouped by adapter as in Punica's segmented gather product (Chen et al., arXiv 2310.18547).
#pragma once

#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {

struct AdapterProductParams {
  // x, weight (of slot 0), out, n, k, out_stride, out_float32, accumulate, half, scale, workspace
  // and counters. The others keep their defaults.
  GemmParams product;
  const ExpertTile* tiles = nullptr;  // `expert` is the slot
  const int32_t* tile_count = nullptr;
  const int32_t* tokens = nullptr;  // by adapter
  int x_stride = 0;                 // elements from row to row of x, a multiple of 8
  int slices = 1;                   // of one shape; more than one only where K is one piece
  int64_t slot_bytes = 0;           // from slot to slot of the weights
};

// Where pieces of K get blocks of their own: bytes of workspace, and words of counters that are
// zero before the first launch and zero again after each.
size_t AdapterWorkspaceBytes(int n, int k);
inline constexpr int kAdapterCounters = kGemmMultiprocessors;

// tile_rows: 8, 32 or 128. most_tiles: MostExpertTiles of the list.
runtime::Error LaunchAdapterProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                                    const AdapterProductParams& params, int tile_rows,
                                    int most_tiles);

}  // namespace quire::kernels::cuda
