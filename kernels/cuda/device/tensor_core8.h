// Products of tiles of eight-bit numbers on the tensor cores: mma.sync.m16n8k32 of int8 into int32,
// and of e4m3 into float32.
//
// A warp multiplies a[16 × 32] by b[32 × 8]. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0] (g, 4t) a[1] (g + 8, 4t) a[2] (g, 4t + 16) a[3] (g + 8, 4t + 16), each with its three
//   right neighbours in the higher bytes; b[0] (4t, g) b[1] (4t + 16, g), each with its lower
//   neighbours; d as for products of 16-bit numbers (tensor_core.h).
// Sums of int8 wrap. The emulated product of e4m3 sums the 32 terms and d in float64 and rounds
// once; hardware may keep fewer bits of a sum, so results on a GPU may differ in the last ones.
#pragma once

#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/device/tensor_core.h"

namespace quire::kernels::cuda::device {

// d: the bits of int32.
#ifdef __CUDACC__
QUIRE_DEVICE void MultiplyInt8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  uint32_t sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = BitsOfFloat(d[i]);
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = FloatOfBits(sum[i]);
}
// Devices before sm_89 multiply the codes as bfloat16, which holds them exactly: which k of a and b
// meet in which place changes no term.
QUIRE_DEVICE void MultiplyE4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  uint32_t wide[4][2];
  uint32_t columns[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) WidenFp8(a[i], wide[i][0], wide[i][1]);
  WidenFp8(b0, columns[0][0], columns[0][1]);
  WidenFp8(b1, columns[1][0], columns[1][1]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t rows[4] = {wide[2 * half][0], wide[2 * half + 1][0], wide[2 * half][1],
                              wide[2 * half + 1][1]};
    MultiplyBf16(d, rows, columns[half][0], columns[half][1]);
  }
#endif
}
#else
QUIRE_DEVICE void MultiplyInt8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated::Multiply(d, a, b, emulated::Element::kInt8);
}
QUIRE_DEVICE void MultiplyE4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated::Multiply(d, a, b, emulated::Element::kE4m3);
}
#endif

}  // namespace quire::kernels::cuda::device
