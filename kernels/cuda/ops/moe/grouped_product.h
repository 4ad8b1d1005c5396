// The products of all experts of a mixture with their rows, as one launch.
//
// For pair p of expert e (route.h): out[p] = x[p / per_row] · weight_eᵀ + bias_e. Tiles, pieces of
// K and the order of sums equal a plain product's (gemm.h), and so an expert's row has the bits of
// a product with that expert's matrix alone. Which rows share a tile, and its width, change no bit.
// A block runs all pieces of K. The launch's layout follows from the number of pairs and experts;
// blocks without a tile end at once.
//
// The matrices of all experts have one shape and form, and are next to each other in memory.
#pragma once

#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {

struct GroupedParams {
  // Of the first expert: x, weight or quantised, bias, out, n, whole_n, k, out_stride, out_float32,
  // half. The others keep their defaults.
  GemmParams product;
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* pairs = nullptr;
  int per_row = 1;           // pairs that share a row of x
  int64_t weight_bytes = 0;  // from expert to expert
  int64_t bias_floats = 0;
};

// The rows of a tile for so many pairs: 8, 32 or 128.
int ExpertTileRows(int pairs, int experts);

runtime::Error LaunchGroupedProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                                    const GroupedParams& params, int tile_rows, int most_tiles);

}  // namespace quire::kernels::cuda
