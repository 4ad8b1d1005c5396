// Codes of fp8 (kernels/kv_fp8.h) as bfloat16, and the range of float16.
#pragma once

#include "kernels/cuda/device/pairs.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda {

// At most float16's largest numbers; a NaN stays one.
QUIRE_DEVICE float SaturatedF16(float x) {
  return x > kF16Largest ? kF16Largest : x < -kF16Largest ? -kF16Largest : x;
}

using device::WidenFp8;

}  // namespace quire::kernels::cuda
