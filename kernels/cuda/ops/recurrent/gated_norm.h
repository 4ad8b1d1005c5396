// RMS norms of groups of a row beside the SiLU of a gate, for a product to read.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// GatedNormOp: each group of `in` divided by its root mean square, times weight, times SiLU(gate);
// or, with gate_first, the same of in · SiLU(gate) without that factor. Sums in sixteen lanes, with
// the CPU's bits up to the rounding to bfloat16.
struct GatedNormParams {
  const float* in = nullptr;      // [rows, width]
  const float* gate = nullptr;    // [rows, width]
  const float* weight = nullptr;  // [group], or [width] with weight_per_group
  uint16_t* out = nullptr;        // bfloat16 [rows, width]
  int rows = 0;
  int width = 0;  // whole groups
  int group = 0;  // at most kMostGatedNormGroup
  bool weight_per_group = false;
  bool gate_first = false;
  float epsilon = 1e-6f;
};

inline constexpr int kMostGatedNormGroup = 24576;

runtime::Error LaunchGatedNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                               const GatedNormParams& params);

}  // namespace quire::kernels::cuda
