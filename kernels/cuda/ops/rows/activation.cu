#include "kernels/cuda/ops/rows/activation.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kActivationThreads = 256;

// x / (1 + e^−y), with no overflow for any y.
QUIRE_DEVICE float TimesSigmoid(float x, float y) {
  const float e = sampling::ExpOfNegative(y < 0.0f ? y : -y);
  const float sigmoid = (y < 0.0f ? e : 1.0f) / (1.0f + e);
  return x * sigmoid;
}

template <Activation kKind>
QUIRE_DEVICE float Activate(float x) {
  if (kKind == Activation::kSiluGated) return TimesSigmoid(x, x);
  if (kKind == Activation::kRelu) return x > 0.0f ? x : 0.0f;
  // 0.5 · (1 + tanh z) is the sigmoid of 2z.
  const float cube = x * x * x;
  return TimesSigmoid(x, 2.0f * 0.7978845608028654f * Fma(0.044715f, cube, x));
}

// A thread makes one vector of 8 elements.
template <Activation kKind>
QUIRE_DEVICE void Run(const ActivationParams& params) {
  const int vectors = params.width / 8;
  const int v = BlockY() * kActivationThreads + ThreadIndex();
  if (v >= vectors) return;
  const bool gated = kKind != Activation::kRelu;
  const size_t row = static_cast<size_t>(BlockX()) * params.width;
  const size_t in = row * (gated ? 2 : 1) + 8 * v;
  const Vector16 gate = Load16(params.in + in);
  Vector16 up = gate;
  if (gated) up = Load16(params.in + in + params.width);
  Vector16 y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low = Activate<kKind>(LowBf16(gate.word[i]));
    float high = Activate<kKind>(HighBf16(gate.word[i]));
    if (gated) {
      low = low * LowBf16(up.word[i]);
      high = high * HighBf16(up.word[i]);
    }
    y.word[i] = PackBf16(low, high);
  }
  Store16(params.out + row + 8 * v, y);
}

QUIRE_KERNEL(silu_gated, ActivationParams, kActivationThreads, 1) {
  Run<Activation::kSiluGated>(params);
}
QUIRE_KERNEL(gelu_gated, ActivationParams, kActivationThreads, 1) {
  Run<Activation::kGeluTanhGated>(params);
}
QUIRE_KERNEL(relu, ActivationParams, kActivationThreads, 1) { Run<Activation::kRelu>(params); }

runtime::Error LaunchActivation(runtime::Runtime& runtime, runtime::StreamId stream,
                                const ActivationParams& params) {
  if (params.width <= 0 || params.width % 8 != 0) {
    return "activation: width " + std::to_string(params.width) + ": a multiple of 8 is needed";
  }
  if (params.rows <= 0) return {};
  const auto kernel =
      params.kind == Activation::kSiluGated       ? QUIRE_KERNEL_OF(silu_gated, kActivationThreads)
      : params.kind == Activation::kGeluTanhGated ? QUIRE_KERNEL_OF(gelu_gated, kActivationThreads)
                                                  : QUIRE_KERNEL_OF(relu, kActivationThreads);
  const int pieces = (params.width / 8 + kActivationThreads - 1) / kActivationThreads;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda
