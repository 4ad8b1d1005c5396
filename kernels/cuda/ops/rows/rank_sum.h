// The sum of the values of all tensor-parallel ranks, in the order of ranks.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[i] = parts[0][i] + parts[1][i] + … in float32, one addition after the other: the bits depend
// on the values alone.
struct RankSumParams {
  const float* parts = nullptr;  // [ranks, count]
  float* out = nullptr;          // [count], not within parts
  int ranks = 0;
  int64_t count = 0;
};

runtime::Error LaunchRankSum(runtime::Runtime& runtime, runtime::StreamId stream,
                             const RankSumParams& params);

}  // namespace quire::kernels::cuda
