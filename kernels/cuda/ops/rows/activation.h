// SwiGLU, GeGLU, gpt-oss' clamped gate, ReLU and its square of bfloat16 rows, and a gate that meets
// float32.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

enum class Activation : int { kSiluGated, kGeluTanhGated, kRelu, kClampedGated, kReluSquared };

// Gated: in [rows, 2 · width] = [gate, up], out = act(gate) · up [rows, width]; clamped: g =
// min(gate, 7), u = up within ±7, out = g · σ(1.702 g) · (u + 1). ReLU and its square: in and out
// [rows, width]. All but `floats` bfloat16, arithmetic in float32 with the exp of kernels/sampling.
struct ActivationParams {
  const uint16_t* in = nullptr;
  uint16_t* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8
  Activation kind = Activation::kSiluGated;
  const float* floats = nullptr;  // in place of `in`, for ReLU's square, which is rounded once
};

runtime::Error LaunchActivation(runtime::Runtime& runtime, runtime::StreamId stream,
                                const ActivationParams& params);

// out[t] = gelu_tanh(gate[t]) · with[t] · scale, rounded once.
struct SliceGateParams {
  const float* gate = nullptr;  // [rows, width]
  const float* with = nullptr;  // [rows][with_stride], `width` of them
  uint16_t* out = nullptr;      // bfloat16 [rows, width]
  int with_stride = 0;          // a multiple of 8, as `width` is
  int rows = 0;
  int width = 0;
  float scale = 1.0f;
};

runtime::Error LaunchSliceGate(runtime::Runtime& runtime, runtime::StreamId stream,
                               const SliceGateParams& params);

}  // namespace quire::kernels::cuda
