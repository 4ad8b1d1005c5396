#include "kernels/cuda/ops/norm/layer_norm.h"

#include <algorithm>

#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

// Shared memory: sums of warps, of two turns for up to 16 warps, then the bias.
inline constexpr int kSumBytes = 2 * 16 * static_cast<int>(sizeof(float));

// The sum over the block's threads, the same bits in all of them: lanes by halves, then warps in
// order. `turn` says which half of the words is not being read still.
template <int kThreads>
QUIRE_DEVICE float SumOfBlock(float x, int turn) {
  constexpr int kWarps = kThreads / kWarpSize;
  float* warp_sums = Shared<float>() + turn * kWarps;
  const float sum = WarpSum(x);
  if (Lane() == 0) warp_sums[WarpIndex()] = sum;
  BlockBarrier();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total = total + warp_sums[w];
  return total;
}

// Eight `v` of the bias in shared memory. Every other four lanes read their upper half first, so
// that eight lanes meet no bank twice.
QUIRE_DEVICE Eight SharedEight(const float* bias, int v) {
  const bool upper_first = Lane() / 4 % 2 != 0;
  const Vector16 first = Load16(bias + 8 * v + (upper_first ? 4 : 0));
  const Vector16 second = Load16(bias + 8 * v + (upper_first ? 0 : 4));
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[i] = FloatOfBits(upper_first ? second.word[i] : first.word[i]);
    e.x[4 + i] = FloatOfBits(upper_first ? first.word[i] : second.word[i]);
  }
  return e;
}

// Blocks take rows in turn and read weight and bias once. A thread holds up to kPieces eights of
// the row, and of the weight; the bias, for which registers are short, is in shared memory. Which
// thread takes which elements, and so the order of the sums, follows from the width.
template <int kThreads, int kPieces>
QUIRE_DEVICE void LayerNorm(const LayerNormParams& params) {
  const auto width = static_cast<float>(params.width);
  const int eights = params.width / 8;
  Eight weight[kPieces];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    weight[piece] = LoadEight(params.weight, piece * kThreads + ThreadIndex(), eights);
  }
  // The barrier of the first sum comes before its first use.
  auto* bias = Shared<float>(kSumBytes);
  if (params.bias != nullptr) {
    for (int at = 4 * ThreadIndex(); at < params.width; at += 4 * kThreads) {
      Store16(bias + at, Load16(params.bias + at));
    }
  }
  for (int r = BlockX(); r < params.rows; r += GridX()) {
    const size_t row = static_cast<size_t>(r) * params.width;
    Eight held[kPieces];
    float sum = 0.0f;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      held[piece] = LoadEight(params.x + row, piece * kThreads + ThreadIndex(), eights);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = sum + held[piece].x[i];
    }
    const float mean = SumOfBlock<kThreads>(sum, 0) / width;
    float squares = 0.0f;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (piece * kThreads + ThreadIndex() >= eights) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float off = held[piece].x[i] - mean;
        squares = Fma(off, off, squares);
      }
    }
    const float factor = 1.0f / Sqrt(SumOfBlock<kThreads>(squares, 1) / width + params.epsilon);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int v = piece * kThreads + ThreadIndex();
      Eight y = {};
      if (params.bias != nullptr && v < eights) y = SharedEight(bias, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        y.x[i] = Fma((held[piece].x[i] - mean) * factor, weight[piece].x[i] + params.weight_offset,
                     y.x[i]);
      }
      StoreRow(params.out, row, v, eights, y);
    }
  }
}

QUIRE_KERNEL(layer_norm_narrow, LayerNormParams, 64, 1) { LayerNorm<64, 2>(params); }
QUIRE_KERNEL(layer_norm_middle, LayerNormParams, 256, 1) { LayerNorm<256, 3>(params); }
QUIRE_KERNEL(layer_norm_wide, LayerNormParams, 512, 1) { LayerNorm<512, 4>(params); }

runtime::Error LaunchLayerNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                               const LayerNormParams& params) {
  if (params.width <= 0 || params.width % 8 != 0 || params.width > kMaxLayerNormWidth) {
    return "layer_norm: width " + std::to_string(params.width) +
           ": a multiple of 8 up to 16384 is needed";
  }
  if (params.rows <= 0) return {};
  const auto kernel = params.width <= 1024   ? QUIRE_KERNEL_OF(layer_norm_narrow, 64)
                      : params.width <= 6144 ? QUIRE_KERNEL_OF(layer_norm_middle, 256)
                                             : QUIRE_KERNEL_OF(layer_norm_wide, 512);
  const int blocks = std::min(params.rows, params.width <= 6144 ? 264 : 132);
  const int bias_bytes = params.bias != nullptr ? 4 * params.width : 0;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1,
                                         static_cast<uint32_t>(kSumBytes + bias_bytes), params));
}

}  // namespace quire::kernels::cuda
