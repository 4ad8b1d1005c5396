// RMSNorm of bfloat16 rows, with the residual added before or without.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// h = x + delta (delta may be null; then h = x), residual_out = h when not null; out = h /
// sqrt(mean h² + epsilon) · (weight + weight_offset). All [rows, width] bfloat16, weight [width]
// bfloat16. `residual_out` may be x itself. Sums in float32 in an order that depends on width
// alone; h is rounded to bfloat16 before it is squared, so that it is the h that the next layer
// reads.
struct RmsNormParams {
  const uint16_t* x = nullptr;
  const uint16_t* delta = nullptr;
  const uint16_t* weight = nullptr;
  uint16_t* residual_out = nullptr;
  uint16_t* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8, at most kMaxRmsNormWidth
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
};

inline constexpr int kMaxRmsNormWidth = 16384;

runtime::Error LaunchRmsNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                             const RmsNormParams& params);

}  // namespace quire::kernels::cuda
