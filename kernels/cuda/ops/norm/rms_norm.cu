#include "kernels/cuda/ops/norm/rms_norm.h"

#include <algorithm>

#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

// Blocks take rows in turn and read the weight once. A thread holds up to kPieces eights of the
// row, and of the weight. Which thread takes which elements, and so the order of the sum, follows
// from the width.
template <int kThreads, int kPieces>
QUIRE_DEVICE void RmsNorm(const RmsNormParams& params) {
  constexpr int kWarps = kThreads / kWarpSize;
  float* warp_sums =
      Shared<float>();  // [2][kWarps]: rows take turns, so one barrier a row is enough
  const int eights = params.width / 8;
  Eight weight[kPieces];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    weight[piece] = LoadEight(params.weight, piece * kThreads + ThreadIndex(), eights);
  }
  int turn = 0;
  for (int r = BlockX(); r < params.rows; r += GridX()) {
    const size_t row = static_cast<size_t>(r) * params.width;
    Eight held[kPieces];
    float squares = 0.0f;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      held[piece] = LoadEight(params.x + row, piece * kThreads + ThreadIndex(), eights);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares = Fma(held[piece].x[i], held[piece].x[i], squares);
    }
    const float sum = WarpSum(squares);
    if (Lane() == 0) warp_sums[turn * kWarps + WarpIndex()] = sum;
    BlockBarrier();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total = total + warp_sums[turn * kWarps + w];
    turn ^= 1;
    const float factor =
        1.0f / Sqrt(total / static_cast<float>(params.mean_width) + params.epsilon);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      Eight y;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        y.x[i] = held[piece].x[i] * factor * (weight[piece].x[i] + params.weight_offset);
      }
      StoreRow(params.out, row, piece * kThreads + ThreadIndex(), eights, y);
    }
  }
}

QUIRE_KERNEL(rms_norm_narrow, RmsNormParams, 64, 1) { RmsNorm<64, 2>(params); }
QUIRE_KERNEL(rms_norm_middle, RmsNormParams, 256, 1) { RmsNorm<256, 3>(params); }
QUIRE_KERNEL(rms_norm_wide, RmsNormParams, 512, 1) { RmsNorm<512, 4>(params); }

runtime::Error LaunchRmsNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                             RmsNormParams params) {
  if (params.mean_width == 0) params.mean_width = params.width;
  if (params.width <= 0 || params.width % 8 != 0 || params.width > kMaxRmsNormWidth) {
    return "rms_norm: width " + std::to_string(params.width) +
           ": a multiple of 8 up to 16384 is needed";
  }
  if (params.rows <= 0) return {};
  const auto kernel = params.width <= 1024   ? QUIRE_KERNEL_OF(rms_norm_narrow, 64)
                      : params.width <= 6144 ? QUIRE_KERNEL_OF(rms_norm_middle, 256)
                                             : QUIRE_KERNEL_OF(rms_norm_wide, 512);
  // One or two blocks for each multiprocessor of an H100 or H200: every block reads the weight.
  const int blocks = std::min(params.rows, params.width <= 6144 ? 264 : 132);
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, 128, params));
}

}  // namespace quire::kernels::cuda
