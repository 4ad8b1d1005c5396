// Norms over a row and rotation of heads: sums in sixteen virtual lanes, lane i taking k = i
// modulo 16.
#pragma once

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

template <class V>
[[gnu::always_inline]] inline typename V::F LoadUpTo(const float* p, int left) {
  return left >= 16 ? V::Load(p) : V::LoadPartial(p, left);
}

template <class V>
[[gnu::always_inline]] inline void StoreUpTo(float* p, typename V::F x, int left) {
  if (left >= 16) {
    V::Store(p, x);
  } else {
    V::StorePartial(p, x, left);
  }
}

// Σ (x − mean)² over the row; lanes past its end add nothing.
template <class V>
float SumOfSquares(const float* x, int width, float mean) {
  auto sum = V::Zero();
  const auto centre = V::Set(mean);
  int i = 0;
  for (; i + 16 <= width; i += 16) {
    const auto d = V::Sub(V::Load(x + i), centre);
    sum = V::Fma(d, d, sum);
  }
  if (i < width) {
    const auto d = V::KeepRange(V::Sub(V::LoadPartial(x + i, width - i), centre), 0, width - i, 0);
    sum = V::Fma(d, d, sum);
  }
  return V::ReduceAdd(sum);
}

template <class V>
float Sum(const float* x, int width) {
  auto sum = V::Zero();
  for (int i = 0; i < width; i += 16) sum = V::Add(sum, LoadUpTo<V>(x + i, width - i));
  return V::ReduceAdd(sum);
}

template <class V>
void NormRow(const NormJob& job, const float* x, float* out) {
  const float width = static_cast<float>(job.width);
  const float mean = job.kind == NormOp::Kind::kLayer ? Sum<V>(x, job.width) / width : 0.0f;
  const float variance = SumOfSquares<V>(x, job.width, mean) / width;
  const auto factor = V::Set(1.0f / std::sqrt(variance + job.epsilon));
  const auto centre = V::Set(mean);
  for (int i = 0; i < job.width; i += 16) {
    const int left = job.width - i;
    auto y = V::Mul(V::Sub(LoadUpTo<V>(x + i, left), centre), factor);
    if (job.weight != nullptr) {
      y = V::Mul(y, V::Add(LoadUpTo<V>(job.weight + i, left), V::Set(job.weight_offset)));
    }
    if (job.bias != nullptr) y = V::Add(y, LoadUpTo<V>(job.bias + i, left));
    if (job.accumulate) y = V::Add(LoadUpTo<V>(out + i, left), y);
    if (job.scale != 1.0f) y = V::Mul(y, V::Set(job.scale));
    StoreUpTo<V>(out + i, y, left);
  }
}

template <class V>
void Norm(const NormJob& job, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* in = job.in + row * job.in_stride;
    float* out = job.out + row * job.out_stride;
    for (int piece = 0; piece < job.pieces; ++piece) {
      NormRow<V>(job, in + piece * job.width, out + piece * job.width);
    }
  }
}

template <class V>
void SliceGate(const SliceGateJob& job, int token_begin, int token_end) {
  for (int t = token_begin; t < token_end; ++t) {
    float* gate = job.gate + t * job.gate_stride;
    const float* with = job.with + t * job.with_stride;
    for (int i = 0; i < job.width; i += 16) {
      const int left = job.width - i;
      const auto y = V::Mul(GeluTanh<V>(LoadUpTo<V>(gate + i, left)), LoadUpTo<V>(with + i, left));
      StoreUpTo<V>(gate + i, V::Mul(y, V::Set(job.scale)), left);
    }
  }
}

// As a product's own (FinishRows in linear.h).
template <class V>
void Activate(const ActivateJob& job, int row_begin, int row_end) {
  using Activation = LinearOp::Activation;
  for (int row = row_begin; row < row_end; ++row) {
    const float* in = job.in + row * job.in_stride;
    float* out = job.out + row * job.out_stride;
    for (int i = 0; i < job.width; i += 16) {
      const int left = job.width - i;
      auto y = LoadUpTo<V>(in + i, left);
      if (!LinearOp::IsGated(job.activation)) {
        y = V::Max(y, V::Zero());
        if (job.activation == Activation::kReluSquared) y = V::Mul(y, y);
      } else {
        const auto z = LoadUpTo<V>(in + job.width + i, left);
        y = job.activation == Activation::kSiluGated       ? V::Mul(Silu<V>(y), z)
            : job.activation == Activation::kGeluTanhGated ? V::Mul(GeluTanh<V>(y), z)
                                                           : ClampedGate<V>(y, z);
      }
      StoreUpTo<V>(out + i, y, left);
    }
  }
}

// Pairs (i, i + n): x_i · cos − x_{i+n} · sin and x_{i+n} · cos + x_i · sin.
template <class V>
void Rotate(float* x, const float* angles, int half) {
  for (int i = 0; i < half; i += 16) {
    const int left = half - i;
    const auto c = LoadUpTo<V>(angles + i, left);
    const auto s = LoadUpTo<V>(angles + half + i, left);
    const auto a = LoadUpTo<V>(x + i, left);
    const auto b = LoadUpTo<V>(x + half + i, left);
    StoreUpTo<V>(x + i, V::Fma(a, c, V::Neg(V::Mul(b, s))), left);
    StoreUpTo<V>(x + half + i, V::Fma(b, c, V::Mul(a, s)), left);
  }
}

}  // namespace quire::kernels::cpu
