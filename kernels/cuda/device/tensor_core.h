// Products of tiles on the tensor cores: mma.sync.m16n8k16 of bfloat16 or float16 into float32.
//
// A warp multiplies a[16 × 16] by b[16 × 8]. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0] (g, 2t) a[1] (g + 8, 2t) a[2] (g, 2t + 8) a[3] (g + 8, 2t + 8), each with its right
//   neighbour in the high half; b[0] (2t, g) b[1] (2t + 8, g), each with its lower neighbour;
//   d[0] (g, 2t) d[1] (g, 2t + 1) d[2] (g + 8, 2t) d[3] (g + 8, 2t + 1).
// The emulated product sums the 16 terms and d in float64 and rounds once; how hardware orders and
// truncates that sum is not specified, so results on a GPU may differ in the last bits.
#pragma once

#include "kernels/cuda/device/kernel.h"

namespace quire::kernels::cuda::device {

#ifdef __CUDACC__
QUIRE_DEVICE void MultiplyBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
QUIRE_DEVICE void MultiplyF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
QUIRE_DEVICE void MultiplyBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated::Multiply(d, a, b, emulated::Element::kBf16);
}
QUIRE_DEVICE void MultiplyF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated::Multiply(d, a, b, emulated::Element::kF16);
}
#endif

}  // namespace quire::kernels::cuda::device
