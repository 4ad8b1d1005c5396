// float16 as float32, exactly.
#pragma once

#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda::device {

#ifdef __CUDACC__
QUIRE_DEVICE float ToFloat(F16 x) { return __half2float(__ushort_as_half(x.bits)); }
#else
QUIRE_DEVICE float ToFloat(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return FloatOfBits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x0400u) return FloatOfBits(sign | ((rest << 13) + 0x38000000u));
  const float small = static_cast<float>(rest) * 0x1p-24f;
  return FloatOfBits(sign | BitsOfFloat(small));
}
#endif

}  // namespace quire::kernels::cuda::device
