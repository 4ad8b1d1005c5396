// The weighted sum of what a token's experts made of it.
#pragma once

#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {

// out[t] = Σ_i weights[t, i] · rows[t · chosen + i], one fma chain from zero in the order of
// choice; or out[t] += that. All float32.
struct CombineParams {
  const float* rows = nullptr;     // [tokens · chosen, width]
  const float* weights = nullptr;  // [tokens, chosen]
  float* out = nullptr;            // [tokens, width]
  int tokens = 0;
  // [tokens, chosen], or null: all rows are there. Those of experts that are not `own` are not
  // read.
  const int32_t* experts = nullptr;
  ExpertRange own;
  int chosen = 0;
  int width = 0;  // a multiple of 8
  bool accumulate = false;
};

runtime::Error LaunchCombine(runtime::Runtime& runtime, runtime::StreamId stream,
                             const CombineParams& params);

}  // namespace quire::kernels::cuda
