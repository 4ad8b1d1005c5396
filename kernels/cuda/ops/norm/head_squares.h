// Sums of squares over the heads of q and of k, for norms of all heads together.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[t] = Σ q², Σ k², and zeros up to out_stride. Sums in an order that depends on the widths
// alone.
struct HeadSquaresParams {
  const float* qkv = nullptr;  // [tokens][stride], the elements of q first, then those of k
  float* out = nullptr;        // [tokens][out_stride]
  int tokens = 0;
  int stride = 0;      // a multiple of 8
  int q_width = 0;     // a multiple of 8
  int k_width = 0;     // a multiple of 8; 0: another rank counts these
  int k_first = 0;     // where k begins, a multiple of 8
  int out_stride = 2;  // 2 to 64
};

runtime::Error LaunchHeadSquares(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const HeadSquaresParams& params);

}  // namespace quire::kernels::cuda
