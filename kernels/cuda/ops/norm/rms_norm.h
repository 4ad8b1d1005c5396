// RMSNorm of rows of the residual stream, for a product to read or to be added to the stream.
#pragma once

#include "kernels/cuda/ops/rows/rows_out.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// y = x / sqrt(mean x² + epsilon) · (weight + weight_offset), rounded once where out is of 16 bits.
// Sums in an order that depends on width alone.
struct RmsNormParams {
  const float* x = nullptr;       // [rows, width]
  const float* weight = nullptr;  // [width]
  RowsOut out;                    // [rows, width], not within x
  int rows = 0;
  int width = 0;       // a multiple of 8, at most kMaxRmsNormWidth
  int mean_width = 0;  // what the squares are divided by, where zeros end the rows; 0: width
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
};

inline constexpr int kMaxRmsNormWidth = 16384;

runtime::Error LaunchRmsNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                             RmsNormParams params);

}  // namespace quire::kernels::cuda
