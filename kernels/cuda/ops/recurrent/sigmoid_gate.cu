#include "kernels/cuda/ops/recurrent/sigmoid_gate.h"

#include "kernels/cuda/ops/recurrent/gates.h"
#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

constexpr int kGateThreads = 256;

QUIRE_KERNEL(sigmoid_gate, SigmoidGateParams, kGateThreads, 1) {
  const int64_t block = static_cast<int64_t>(BlockX()) * kGateThreads;
  const int64_t left = params.count / 8 - block;
  const int eights = left < kGateThreads ? static_cast<int>(left) : kGateThreads;
  const Eight gate = LoadEight(params.gate + 8 * block, ThreadIndex(), eights);
  if (ThreadIndex() >= eights) return;
  const int64_t at = 8 * (block + ThreadIndex());
  Eight y = UnpackBf16(Load16(params.in + at));
#pragma unroll
  for (int i = 0; i < 8; ++i) y.x[i] = GatedBySigmoid(y.x[i], gate.x[i]);
  Store16(params.out + at, PackBf16(y));
}

runtime::Error LaunchSigmoidGate(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const SigmoidGateParams& params) {
  if (params.count % 8 != 0) {
    return "sigmoid_gate: " + std::to_string(params.count) + " elements: a multiple of 8 is needed";
  }
  if (params.count <= 0) return {};
  const int64_t blocks = (params.count / 8 + kGateThreads - 1) / kGateThreads;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(sigmoid_gate, kGateThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, 0, params));
}

}  // namespace quire::kernels::cuda
