#include "kernels/cuda/ops/layer_norm.h"

#include <algorithm>

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

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

// One vector of a row with its delta added, and written back where that is wanted.
QUIRE_DEVICE Vector16 ReadEight(const LayerNormParams& params, size_t at) {
  Vector16 x = Load16(params.x + at);
  if (params.delta != nullptr) {
    const Vector16 delta = Load16(params.delta + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x.word[i] = PackBf16(LowBf16(x.word[i]) + LowBf16(delta.word[i]),
                           HighBf16(x.word[i]) + HighBf16(delta.word[i]));
    }
  }
  if (params.residual_out != nullptr) Store16(params.residual_out + at, x);
  return x;
}

// Blocks take rows in turn and read weight and bias once. A thread holds up to kPieces vectors of 8
// elements of the row, and of both. Which thread takes which elements, and so the order of the
// sums, follows from the width.
template <int kThreads, int kPieces>
QUIRE_DEVICE void LayerNorm(const LayerNormParams& params) {
  const auto width = static_cast<float>(params.width);
  const int vectors = params.width / 8;
  Vector16 weight[kPieces];
  Vector16 bias[kPieces];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int v = piece * kThreads + ThreadIndex();
    bias[piece] = Vector16{{0, 0, 0, 0}};
    if (v >= vectors) continue;
    weight[piece] = Load16(params.weight + 8 * v);
    if (params.bias != nullptr) bias[piece] = Load16(params.bias + 8 * v);
  }
  for (int r = BlockX(); r < params.rows; r += GridX()) {
    const size_t row = static_cast<size_t>(r) * params.width;
    Vector16 held[kPieces];
    float sum = 0.0f;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int v = piece * kThreads + ThreadIndex();
      if (v >= vectors) continue;
      held[piece] = ReadEight(params, row + 8 * v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum = sum + LowBf16(held[piece].word[i]);
        sum = sum + HighBf16(held[piece].word[i]);
      }
    }
    const float mean = SumOfBlock<kThreads>(sum, 0) / width;
    float squares = 0.0f;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (piece * kThreads + ThreadIndex() >= vectors) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = LowBf16(held[piece].word[i]) - mean;
        const float high = HighBf16(held[piece].word[i]) - mean;
        squares = Fma(low, low, squares);
        squares = Fma(high, high, squares);
      }
    }
    const float factor = 1.0f / Sqrt(SumOfBlock<kThreads>(squares, 1) / width + params.epsilon);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int v = piece * kThreads + ThreadIndex();
      if (v >= vectors) continue;
      const Vector16& w = weight[piece];
      const Vector16& b = bias[piece];
      Vector16 y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = (LowBf16(held[piece].word[i]) - mean) * factor;
        const float high = (HighBf16(held[piece].word[i]) - mean) * factor;
        y.word[i] =
            PackBf16(Fma(low, LowBf16(w.word[i]) + params.weight_offset, LowBf16(b.word[i])),
                     Fma(high, HighBf16(w.word[i]) + params.weight_offset, HighBf16(b.word[i])));
      }
      Store16(params.out + row + 8 * v, y);
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
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, 128, params));
}

}  // namespace quire::kernels::cuda
