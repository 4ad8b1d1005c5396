// The logits of all tensor-parallel ranks side by side, as one rank would have them.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[row][id] = parts[id / width][row][id modulo width], for ids below `vocabulary`: the rest of a
// row is left as it is.
struct RankColumnsParams {
  const float* parts = nullptr;  // [ranks][rows][part_stride]
  float* out = nullptr;          // [rows][out_stride], not within parts
  int ranks = 0;
  int rows = 0;
  int width = 0;  // ids of a rank
  int part_stride = 0;
  int out_stride = 0;
  int vocabulary = 0;
};

runtime::Error LaunchRankColumns(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const RankColumnsParams& params);

}  // namespace quire::kernels::cuda
