// A product of its own for each head, all heads in one launch.
//
// out[t][h] = W_h · x[t][h], and behind it the elements of x[t][h] that W_h has no columns for, as
// they are. An element has the sum that ops/gemm computes with the same K: up to kMostHeadColumns
// one chain of products in the order of k, so its bits depend on K alone.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// ops/gemm cuts K from here on, so this is where the sums of both begin to differ.
inline constexpr int kMostHeadColumns = 1016;

struct HeadLinearParams {
  const uint16_t* x = nullptr;               // [tokens][heads][in_dim]
  const uint16_t* const* weights = nullptr;  // [heads] of [n][k]
  uint16_t* out = nullptr;                   // bfloat16 [tokens][heads][out_dim]
  int tokens = 0;
  int heads = 0;
  int n = 0;          // a multiple of 4
  int k = 0;          // a multiple of 8, at most kMostHeadColumns
  int in_dim = 0;     // a multiple of 8, k or more; out_dim is n + in_dim − k
  bool half = false;  // x and the weights are float16, else bfloat16
};

runtime::Error LaunchHeadLinear(runtime::Runtime& runtime, runtime::StreamId stream,
                                const HeadLinearParams& params);

}  // namespace quire::kernels::cuda
