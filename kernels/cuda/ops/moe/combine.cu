#include "kernels/cuda/ops/moe/combine.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kCombineThreads = 128;

// A thread makes four neighbours of one row.
QUIRE_KERNEL(combine_experts, CombineParams, kCombineThreads, 1) {
  const int v = BlockY() * kCombineThreads + ThreadIndex();
  if (v >= params.width / 4) return;
  const size_t token = BlockX();
  const float* weights = params.weights + token * params.chosen;
  const bool all = params.experts == nullptr;
  const float* from = params.rows + token * params.chosen * params.width + 4 * v;
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
  for (int i = 0; i < params.chosen; ++i) {
    if (!all) {
      const int own = params.experts[token * params.chosen + i] - params.own.first;
      if (own < 0 || own >= params.own.count) continue;
    }
    const Vector16 row = Load16(from + static_cast<size_t>(i) * params.width);
    const float weight = weights[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] = Fma(weight, FloatOfBits(row.word[j]), sum[j]);
  }
  float* out = params.out + token * params.width + 4 * v;
  if (params.accumulate) {
    const Vector16 there = Load16(out);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] = FloatOfBits(there.word[j]) + sum[j];
  }
  Store16(out, Vector16{{BitsOfFloat(sum[0]), BitsOfFloat(sum[1]), BitsOfFloat(sum[2]),
                         BitsOfFloat(sum[3])}});
}

runtime::Error LaunchCombine(runtime::Runtime& runtime, runtime::StreamId stream,
                             const CombineParams& params) {
  if (params.width <= 0 || params.width % 8 != 0) {
    return "combine: width " + std::to_string(params.width) + ": a multiple of 8 is needed";
  }
  if (params.tokens <= 0) return {};
  const int pieces = (params.width / 4 + kCombineThreads - 1) / kCombineThreads;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(combine_experts, kCombineThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.tokens),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda
