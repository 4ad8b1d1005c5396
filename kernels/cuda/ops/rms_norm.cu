#include "kernels/cuda/ops/rms_norm.h"

#include <algorithm>

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

// Adds a row's delta, keeps the row in registers, and returns this thread's part of its squares.
template <int kThreads, int kPieces>
QUIRE_DEVICE float ReadRow(const RmsNormParams& params, size_t row, Vector16 (&held)[kPieces]) {
  float sum = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int v = piece * kThreads + ThreadIndex();
    if (v >= params.width / 8) continue;
    Vector16 x = Load16(params.x + row + 8 * v);
    if (params.delta != nullptr) {
      const Vector16 delta = Load16(params.delta + row + 8 * v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x.word[i] = PackBf16(LowBf16(x.word[i]) + LowBf16(delta.word[i]),
                             HighBf16(x.word[i]) + HighBf16(delta.word[i]));
      }
    }
    if (params.residual_out != nullptr) Store16(params.residual_out + row + 8 * v, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum = Fma(LowBf16(x.word[i]), LowBf16(x.word[i]), sum);
      sum = Fma(HighBf16(x.word[i]), HighBf16(x.word[i]), sum);
    }
    held[piece] = x;
  }
  return sum;
}

// Blocks take rows in turn and read the weight once. A thread holds up to kPieces vectors of 8
// elements of the row, and of the weight. Which thread takes which elements, and so the order of
// the sum, follows from the width.
template <int kThreads, int kPieces>
QUIRE_DEVICE void RmsNorm(const RmsNormParams& params) {
  constexpr int kWarps = kThreads / kWarpSize;
  float* warp_sums =
      Shared<float>();  // [2][kWarps]: rows take turns, so one barrier a row is enough
  Vector16 weight[kPieces];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int v = piece * kThreads + ThreadIndex();
    if (v < params.width / 8) weight[piece] = Load16(params.weight + 8 * v);
  }
  int turn = 0;
  for (int r = BlockX(); r < params.rows; r += GridX()) {
    const size_t row = static_cast<size_t>(r) * params.width;
    Vector16 held[kPieces];
    const float sum = WarpSum(ReadRow<kThreads, kPieces>(params, row, held));
    if (Lane() == 0) warp_sums[turn * kWarps + WarpIndex()] = sum;
    BlockBarrier();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total = total + warp_sums[turn * kWarps + w];
    turn ^= 1;
    const float factor = 1.0f / Sqrt(total / static_cast<float>(params.width) + params.epsilon);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int v = piece * kThreads + ThreadIndex();
      if (v >= params.width / 8) continue;
      Vector16 y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t h = held[piece].word[i];
        const uint32_t w = weight[piece].word[i];
        y.word[i] = PackBf16(LowBf16(h) * factor * (LowBf16(w) + params.weight_offset),
                             HighBf16(h) * factor * (HighBf16(w) + params.weight_offset));
      }
      Store16(params.out + row + 8 * v, y);
    }
  }
}

QUIRE_KERNEL(rms_norm_narrow, RmsNormParams, 64, 1) { RmsNorm<64, 2>(params); }
QUIRE_KERNEL(rms_norm_middle, RmsNormParams, 256, 1) { RmsNorm<256, 3>(params); }
QUIRE_KERNEL(rms_norm_wide, RmsNormParams, 512, 1) { RmsNorm<512, 4>(params); }

runtime::Error LaunchRmsNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                             const RmsNormParams& params) {
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
