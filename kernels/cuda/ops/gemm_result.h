// What is done to a product's sums before they are stored: bias, scale, soft cap, ReLU, and the sum
// with what is there.
#pragma once

#include "kernels/cuda/ops/gemm_tile.h"
#include "kernels/cuda/ops/soft_cap.h"

namespace quire::kernels::cuda {

// What is done to eight neighbours of one row of the result, in the order of gemm.h.
QUIRE_DEVICE void Finish8(const GemmParams& params, int row, float (&y)[8]) {
  if (params.bias != nullptr) {
    const Vector16 bias = Load16(params.bias + row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = y[2 * i] + LowBf16(bias.word[i]);
      y[2 * i + 1] = y[2 * i + 1] + HighBf16(bias.word[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y[i] = y[i] * params.scale;
    if (params.softcap > 0.0f) y[i] = SoftCap(y[i], params.softcap);
    if (params.relu) y[i] = y[i] > 0.0f ? y[i] : 0.0f;
  }
}

QUIRE_DEVICE void StoreFloats(float* out, bool accumulate, const float* y) {
#pragma unroll
  for (int half = 0; half < 8; half += 4) {
    float z[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] = y[half + i];
    if (accumulate) {
      const Vector16 there = Load16(out + half);
#pragma unroll
      for (int i = 0; i < 4; ++i) z[i] = FloatOfBits(there.word[i]) + z[i];
    }
    Store16(out + half,
            Vector16{{BitsOfFloat(z[0]), BitsOfFloat(z[1]), BitsOfFloat(z[2]), BitsOfFloat(z[3])}});
  }
}

QUIRE_DEVICE void StoreBf16(uint16_t* out, bool accumulate, const float* y) {
  Vector16 there{{0, 0, 0, 0}};
  if (accumulate) there = Load16(out);
  Vector16 z;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    z.word[i] = accumulate ? PackBf16(LowBf16(there.word[i]) + y[2 * i],
                                      HighBf16(there.word[i]) + y[2 * i + 1])
                           : PackBf16(y[2 * i], y[2 * i + 1]);
  }
  Store16(out, z);
}

// Eight neighbours of one row of the result, in its type. Every other four lanes read their upper
// half first, so that eight lanes meet no bank twice.
QUIRE_DEVICE void StoreOut(const GemmParams& params, int token, int row, const float* from) {
  float y[8];
  const bool upper_first = Lane() / 4 % 2 != 0;
  const Vector16 first = Load16(from + (upper_first ? 4 : 0));
  const Vector16 second = Load16(from + (upper_first ? 0 : 4));
  const Vector16 low = upper_first ? second : first;
  const Vector16 high = upper_first ? first : second;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = FloatOfBits(low.word[i]);
    y[i + 4] = FloatOfBits(high.word[i]);
  }
  Finish8(params, row, y);
  const size_t at = static_cast<size_t>(token) * params.out_stride + row;
  if (params.out_float32) {
    StoreFloats(static_cast<float*>(params.out) + at, params.accumulate, y);
  } else {
    StoreBf16(static_cast<uint16_t*>(params.out) + at, params.accumulate, y);
  }
}

}  // namespace quire::kernels::cuda
