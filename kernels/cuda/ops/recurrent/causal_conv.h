// The causal convolution of recurrent layers, over the last inputs that a state keeps.
#pragma once

#include "kernels/cuda/ops/recurrent/state_pages.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// CausalConvOp: y[t, c] = bias[c] + Σ_j weight[j, c] · x[t − taps + 1 + j, c], one chain in the
// order of j, with the CPU's bits; out = y or SiLU(y). Gated: `in` holds B, C and x beside each
// other, B · x is convolved, out = C · y. The state's units are [taps − 1][kStateChannels].
struct CausalConvParams {
  const float* in = nullptr;      // [tokens][in_stride]
  int in_stride = 0;              // elements, a multiple of 4
  int channels = 0;               // a multiple of 8
  int taps = 0;                   // 2 … kMostTaps
  const float* weight = nullptr;  // [taps][channels]
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
  bool gated = false;
  // One of the two is null: float32, or bfloat16 for a product to read. [tokens][out_stride]
  float* out = nullptr;
  uint16_t* narrow = nullptr;
  int out_stride = 0;  // elements, a multiple of 4
  StateRuns runs;
  StatePages pages;
};

runtime::Error LaunchCausalConv(runtime::Runtime& runtime, runtime::StreamId stream,
                                const CausalConvParams& params);

}  // namespace quire::kernels::cuda
