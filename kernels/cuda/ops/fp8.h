// Codes of fp8 (kernels/kv_fp8.h) as bfloat16, and the range of float16.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda {

// At most float16's largest numbers; a NaN stays one.
QUIRE_DEVICE float SaturatedF16(float x) {
  return x > kF16Largest ? kF16Largest : x < -kF16Largest ? -kF16Largest : x;
}

// Four codes as bfloat16, exactly: the first two in `low`. A code's bits in the place of
// bfloat16's exponent and mantissa are its value · 2^−120, subnormal ones too.
QUIRE_DEVICE void WidenFp8(uint32_t codes, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kTwoTo120 = 0x7b807b80u;
  const uint32_t pairs[2] = {(codes & 0xffu) << 8 | (codes & 0xff00u) << 16,
                             (codes & 0xff0000u) >> 8 | (codes & 0xff000000u)};
  low = device::ProductBf16x2((pairs[0] & 0x80008000u) | (pairs[0] >> 4 & 0x07f007f0u), kTwoTo120);
  high = device::ProductBf16x2((pairs[1] & 0x80008000u) | (pairs[1] >> 4 & 0x07f007f0u), kTwoTo120);
}

}  // namespace quire::kernels::cuda
