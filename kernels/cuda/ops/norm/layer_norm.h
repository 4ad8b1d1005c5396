// LayerNorm of rows of the residual stream, for a product to read or to become the stream.
#pragma once

#include "kernels/cuda/ops/rows/rows_out.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// With m = mean x and v = mean (x − m)², y = (x − m) / sqrt(v + epsilon) · (weight + weight_offset)
// + bias, rounded once where out is of 16 bits. Sums in an order that depends on width alone.
struct LayerNormParams {
  const float* x = nullptr;       // [rows, width]
  const float* weight = nullptr;  // [width]
  const float* bias = nullptr;    // [width] or null
  RowsOut out;                    // [rows, width], not within x
  int rows = 0;
  int width = 0;  // a multiple of 8, at most kMaxLayerNormWidth
  float epsilon = 1e-5f;
  float weight_offset = 0.0f;
};

inline constexpr int kMaxLayerNormWidth =
    16384;  // devices with the smallest blocks can hold a bias of this width

runtime::Error LaunchLayerNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                               const LayerNormParams& params);

}  // namespace quire::kernels::cuda
