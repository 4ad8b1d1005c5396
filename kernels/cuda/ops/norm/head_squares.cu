#include "kernels/cuda/ops/norm/head_squares.h"

#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

constexpr int kSquaresThreads = 256;
constexpr int kSquaresWarps = kSquaresThreads / kWarpSize;

// A thread's fours in order, then lanes in halves, then warps in order.
QUIRE_DEVICE float SumOfRow(const float* row, int width, float* warp_sums) {
  float squares = 0.0f;
  for (int four = ThreadIndex(); four < width / 4; four += kSquaresThreads) {
    const Vector16 v = Load16(row + 4 * four);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      squares = Fma(FloatOfBits(v.word[i]), FloatOfBits(v.word[i]), squares);
    }
  }
  const float sum = WarpSum(squares);
  if (Lane() == 0) warp_sums[WarpIndex()] = sum;
  BlockBarrier();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kSquaresWarps; ++w) total = total + warp_sums[w];
  return total;
}

QUIRE_KERNEL(head_squares, HeadSquaresParams, kSquaresThreads, 1) {
  const size_t token = BlockX();
  const float* row = params.qkv + token * params.stride;
  const float q = SumOfRow(row, params.q_width, Shared<float>());
  const float k = SumOfRow(row + params.k_first, params.k_width, Shared<float>() + kSquaresWarps);
  if (ThreadIndex() >= params.out_stride) return;
  params.out[token * params.out_stride + ThreadIndex()] = ThreadIndex() == 0   ? q
                                                          : ThreadIndex() == 1 ? k
                                                                               : 0.0f;
}

runtime::Error LaunchHeadSquares(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const HeadSquaresParams& params) {
  if (params.q_width % 8 != 0 || params.k_width % 8 != 0 || params.k_first % 8 != 0 ||
      params.stride % 8 != 0 || params.out_stride < 2 || params.out_stride > 64) {
    return "head_squares: widths " + std::to_string(params.q_width) + " and " +
           std::to_string(params.k_width) + ": multiples of 8 are needed";
  }
  if (params.tokens <= 0) return {};
  return runtime.Launch(stream, QUIRE_KERNEL_OF(head_squares, kSquaresThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.tokens), 1,
                                         2 * kSquaresWarps * sizeof(float), params));
}

}  // namespace quire::kernels::cuda
