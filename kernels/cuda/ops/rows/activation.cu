#include "kernels/cuda/ops/rows/activation.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/ops/rows/float_rows.h"
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
  if (kKind == Activation::kReluSquared) return x > 0.0f ? x * x : 0.0f;
  // 0.5 · (1 + tanh z) is the sigmoid of 2z.
  const float cube = x * x * x;
  return TimesSigmoid(x, 2.0f * 0.7978845608028654f * Fma(0.044715f, cube, x));
}

// A NaN passes the clamps.
template <Activation kKind>
QUIRE_DEVICE float Gate(float gate, float up) {
  if (kKind != Activation::kClampedGated) return Activate<kKind>(gate) * up;
  const float g = gate > 7.0f ? 7.0f : gate;
  const float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return (u + 1.0f) * TimesSigmoid(g, 1.702f * g);
}

// A thread makes one vector of 8 elements.
template <Activation kKind>
QUIRE_DEVICE void Run(const ActivationParams& params) {
  const int vectors = params.width / 8;
  const int v = BlockY() * kActivationThreads + ThreadIndex();
  if (v >= vectors) return;
  const bool gated = kKind != Activation::kRelu && kKind != Activation::kReluSquared;
  const size_t row = static_cast<size_t>(BlockX()) * params.width;
  const size_t in = row * (gated ? 2 : 1) + 8 * v;
  const Vector16 gate = Load16(params.in + in);
  Vector16 up = gate;
  if (gated) up = Load16(params.in + in + params.width);
  Vector16 y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y.word[i] = gated ? PackBf16(Gate<kKind>(LowBf16(gate.word[i]), LowBf16(up.word[i])),
                                 Gate<kKind>(HighBf16(gate.word[i]), HighBf16(up.word[i])))
                      : PackBf16(Activate<kKind>(LowBf16(gate.word[i])),
                                 Activate<kKind>(HighBf16(gate.word[i])));
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
QUIRE_KERNEL(clamped_gated, ActivationParams, kActivationThreads, 1) {
  Run<Activation::kClampedGated>(params);
}
QUIRE_KERNEL(relu_squared, ActivationParams, kActivationThreads, 1) {
  Run<Activation::kReluSquared>(params);
}

QUIRE_KERNEL(relu_squared_floats, ActivationParams, kActivationThreads, 1) {
  const int vectors = params.width / 8;
  const int v = BlockY() * kActivationThreads + ThreadIndex();
  const size_t row = static_cast<size_t>(BlockX()) * params.width;
  Eight y = LoadEight(params.floats + row, v, vectors);
  if (v >= vectors) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) y.x[i] = Activate<Activation::kReluSquared>(y.x[i]);
  Store16(params.out + row + 8 * v, PackBf16(y));
}

// A thread makes one vector of 8 elements; lanes meet to load them.
QUIRE_KERNEL(slice_gate, SliceGateParams, kActivationThreads, 1) {
  const int vectors = params.width / 8;
  const int v = BlockY() * kActivationThreads + ThreadIndex();
  const size_t row = BlockX();
  Eight y = LoadEight(params.gate + row * params.width, v, vectors);
  const Eight with = LoadEight(params.with + row * params.with_stride, v, vectors);
  if (v >= vectors) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y.x[i] = Activate<Activation::kGeluTanhGated>(y.x[i]) * with.x[i] * params.scale;
  }
  Store16(params.out + row * params.width + 8 * v, PackBf16(y));
}

namespace {

runtime::KernelHandle KernelOf(Activation kind) {
  switch (kind) {
    case Activation::kSiluGated:
      return QUIRE_KERNEL_OF(silu_gated, kActivationThreads);
    case Activation::kGeluTanhGated:
      return QUIRE_KERNEL_OF(gelu_gated, kActivationThreads);
    case Activation::kClampedGated:
      return QUIRE_KERNEL_OF(clamped_gated, kActivationThreads);
    case Activation::kReluSquared:
      return QUIRE_KERNEL_OF(relu_squared, kActivationThreads);
    case Activation::kRelu:
      break;
  }
  return QUIRE_KERNEL_OF(relu, kActivationThreads);
}

}  // namespace

runtime::Error LaunchActivation(runtime::Runtime& runtime, runtime::StreamId stream,
                                const ActivationParams& params) {
  if (params.width <= 0 || params.width % 8 != 0) {
    return "activation: width " + std::to_string(params.width) + ": a multiple of 8 is needed";
  }
  if (params.rows <= 0) return {};
  if (params.floats != nullptr && params.kind != Activation::kReluSquared) {
    return "activation: float32 rows are for the square of ReLU";
  }
  const runtime::KernelHandle kernel =
      params.floats != nullptr ? QUIRE_KERNEL_OF(relu_squared_floats, kActivationThreads)
                               : KernelOf(params.kind);
  const int pieces = (params.width / 8 + kActivationThreads - 1) / kActivationThreads;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(pieces), 0, params));
}

runtime::Error LaunchSliceGate(runtime::Runtime& runtime, runtime::StreamId stream,
                               const SliceGateParams& params) {
  if (params.width <= 0 || params.width % 8 != 0 || params.with_stride % 8 != 0) {
    return "slice_gate: width " + std::to_string(params.width) + " of rows of " +
           std::to_string(params.with_stride) + ": multiples of 8 are needed";
  }
  if (params.rows <= 0) return {};
  const int pieces = (params.width / 8 + kActivationThreads - 1) / kActivationThreads;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(slice_gate, kActivationThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda
