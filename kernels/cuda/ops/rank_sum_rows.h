// The sum of the residual stream that all tensor-parallel ranks gave, in the order of ranks.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[i] = Σ over ranks of (parts[rank][i] + deltas[rank][i]): each rank's own two first, then one
// rank after the other, in float32, rounded once. The bits depend on the values alone, and are
// those of CPU ranks' sums.
struct RankSumRowsParams {
  const uint16_t* parts = nullptr;   // bfloat16, [ranks, count]
  const uint16_t* deltas = nullptr;  // the same; null: none
  uint16_t* out = nullptr;           // [count], not within parts or deltas
  int ranks = 0;
  int64_t count = 0;  // a multiple of 8
};

runtime::Error LaunchRankSumRows(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const RankSumRowsParams& params);

}  // namespace quire::kernels::cuda
