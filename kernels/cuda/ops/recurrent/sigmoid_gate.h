// The gate of attention: its outputs times the sigmoid of a gate.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out = in · σ(gate), element by element; out may be in.
struct SigmoidGateParams {
  const uint16_t* in = nullptr;  // bfloat16
  const float* gate = nullptr;
  uint16_t* out = nullptr;  // bfloat16
  int64_t count = 0;        // a multiple of 8
};

runtime::Error LaunchSigmoidGate(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const SigmoidGateParams& params);

}  // namespace quire::kernels::cuda
