// Rows of the residual stream as a product reads them.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out = in, rounded to bfloat16.
struct RoundRowsParams {
  const float* in = nullptr;
  uint16_t* out = nullptr;
  int64_t count = 0;  // a multiple of 8
};

runtime::Error LaunchRoundRows(runtime::Runtime& runtime, runtime::StreamId stream,
                               const RoundRowsParams& params);

}  // namespace quire::kernels::cuda
