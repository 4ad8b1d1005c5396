// SwiGLU, GeGLU and ReLU of bfloat16 rows.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

enum class Activation : int { kSiluGated, kGeluTanhGated, kRelu };

// Gated: in [rows, 2 · width] = [gate, up], out = act(gate) · up [rows, width]. ReLU: in and out
// [rows, width]. All bfloat16, arithmetic in float32 with the exp of kernels/sampling.
struct ActivationParams {
  const uint16_t* in = nullptr;
  uint16_t* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8
  Activation kind = Activation::kSiluGated;
};

runtime::Error LaunchActivation(runtime::Runtime& runtime, runtime::StreamId stream,
                                const ActivationParams& params);

}  // namespace quire::kernels::cuda
