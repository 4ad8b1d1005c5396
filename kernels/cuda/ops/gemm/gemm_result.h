// The operations on a product's sums before they are stored: bias, scale, soft cap, ReLU, and
// addition to the previous content.
#pragma once

#include "kernels/cuda/ops/gemm/gemm_tile.h"
#include "kernels/cuda/ops/soft_cap.h"

namespace quire::kernels::cuda {

// The operations on four neighbours of one row of the result, in the order of gemm.h.
QUIRE_DEVICE void Finish4(const GemmParams& params, int row, float* y) {
  if (params.bias != nullptr) {
    const Vector16 bias = Load16(params.bias + row);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = y[i] + FloatOfBits(bias.word[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = y[i] * params.scale;
    if (params.softcap > 0.0f) y[i] = SoftCap(y[i], params.softcap);
    if (params.relu) y[i] = y[i] > 0.0f ? y[i] : 0.0f;
    if (params.relu_squared) y[i] = y[i] * y[i];
  }
}

// Four neighbours of one row of a result in float32: lanes are side by side in memory.
QUIRE_DEVICE void StoreFloats(const GemmParams& params, int token, int row, const float* from) {
  float y[4];
  const Vector16 sums = Load16(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = FloatOfBits(sums.word[i]);
  Finish4(params, row, y);
  float* out =
      static_cast<float*>(params.out) + static_cast<size_t>(token) * params.out_stride + row;
  if (params.accumulate) {
    const Vector16 there = Load16(out);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = FloatOfBits(there.word[i]) + y[i];
  }
  Store16(out,
          Vector16{{BitsOfFloat(y[0]), BitsOfFloat(y[1]), BitsOfFloat(y[2]), BitsOfFloat(y[3])}});
}

// Eight neighbours of one row of a result in bfloat16. Every other four lanes read their upper half
// first, so that eight lanes meet no bank twice.
QUIRE_DEVICE void StoreBf16(const GemmParams& params, int token, int row, const float* from) {
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
  Finish4(params, row, y);
  Finish4(params, row + 4, y + 4);
  uint16_t* out =
      static_cast<uint16_t*>(params.out) + static_cast<size_t>(token) * params.out_stride + row;
  Store16(out, Vector16{{PackBf16(y[0], y[1]), PackBf16(y[2], y[3]), PackBf16(y[4], y[5]),
                         PackBf16(y[6], y[7])}});
}

// The sums of a tile that are transposed in shared memory, [token][weight], kStride floats apart.
template <int kTokens, int kStride, int kWide>
QUIRE_DEVICE void StoreTile(const GemmParams& params, const float* turned) {
  for (int i = ThreadIndex(); i < kTokens * kGemmRows / kWide; i += kGemmThreads) {
    const int local_token = i / (kGemmRows / kWide);
    const int local_row = i % (kGemmRows / kWide) * kWide;
    const int token = BlockX() * kTokens + local_token;
    const int row = BlockY() * kGemmRows + local_row;
    if (token >= params.m || row >= params.n) continue;
    const float* from = turned + local_token * kStride + local_row;
    if (kWide == 4) {
      StoreFloats(params, token, row, from);
    } else {
      StoreBf16(params, token, row, from);
    }
  }
}

}  // namespace quire::kernels::cuda
