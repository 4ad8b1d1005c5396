// LayerNorm of bfloat16 rows, with the residual added before or without.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// h = x + delta (delta may be null; then h = x), residual_out = h when not null; with m = mean h
// and v = mean (h − m)², out = (h − m) / sqrt(v + epsilon) · (weight + weight_offset) + bias. All
// [rows, width] bfloat16, weight and bias [width] bfloat16, bias may be null. `residual_out` and
// `out` may be x itself. Sums in float32 in an order that depends on width alone; h is rounded to
// bfloat16 before it is summed, so that it is the h that the next layer reads.
struct LayerNormParams {
  const uint16_t* x = nullptr;
  const uint16_t* delta = nullptr;
  const uint16_t* weight = nullptr;
  const uint16_t* bias = nullptr;
  uint16_t* residual_out = nullptr;
  uint16_t* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8, at most kMaxLayerNormWidth
  float epsilon = 1e-5f;
  float weight_offset = 0.0f;
};

inline constexpr int kMaxLayerNormWidth = 16384;

runtime::Error LaunchLayerNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                               const LayerNormParams& params);

}  // namespace quire::kernels::cuda
