// The linear recurrences of recurrent layers: the gated delta rule and Mamba-2, token by token.
#pragma once

#include "kernels/cuda/ops/recurrent/state_pages.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/recurrent_ops.h"

namespace quire::kernels::cuda {

// RecurrenceOp, with the CPU's bits in prefill as in decode: a sum over keys is four chains (i
// modulo 4), added as (0 + 1) + (2 + 3). A launch walks each row's tokens with the state in
// registers. A state's unit is the matrix of one head, [value_dim / 16][key_dim][16].
struct RecurrenceParams {
  RecurrenceOp::Kind kind = RecurrenceOp::Kind::kGatedDelta;
  bool tiled = false;
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;  // at most kMostKeyDim
  int value_dim = 0;
  const float* decay = nullptr;  // [value_heads]
  const float* bias = nullptr;   // [value_heads]
  const float* skip = nullptr;   // [value_heads] or null
  const float* in = nullptr;     // [tokens][in_stride]: q, k, v, or v, k, q in Mamba-2
  int in_stride = 0;
  const float* gates = nullptr;  // [tokens][gates_stride]
  int gates_stride = 0;
  float* out = nullptr;  // [tokens][out_stride]
  int out_stride = 0;
  StateRuns runs;
  StatePages pages;
};

inline constexpr int kMostKeyDim = 256;

runtime::Error LaunchRecurrence(runtime::Runtime& runtime, runtime::StreamId stream,
                                const RecurrenceParams& params);

}  // namespace quire::kernels::cuda
