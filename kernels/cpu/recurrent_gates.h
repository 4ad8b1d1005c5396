// Gates of recurrent layers and of attention: the numbers of a head, norms beside SiLU of a gate,
// and the sigmoid of attention's.
#pragma once

#include <cmath>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent_jobs.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cpu {

[[gnu::always_inline]] inline float Softplus(float x) {
  const float size = x < 0.0f ? -x : x;
  const double tail = sampling::Log(1.0 + static_cast<double>(sampling::ExpOfNegative(-size)));
  return (x > 0.0f ? x : 0.0f) + static_cast<float>(tail);
}

[[gnu::always_inline]] inline float Sigmoid(float x) {
  const float e = sampling::ExpOfNegative(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

template <class V>
void GatedNorm(const GatedNormJob& job, int row_begin, int row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* in = job.in + row * job.in_stride;
    const float* gate = job.gate + row * job.gate_stride;
    float* out = job.out + row * job.out_stride;
    for (int begin = 0; begin < job.width; begin += job.group) {
      for (int i = 0; job.gate_first && i < job.group; i += 16) {
        const int left = job.group - i;
        const auto opened = Silu<V>(LoadUpTo<V>(gate + begin + i, left));
        StoreUpTo<V>(out + begin + i, V::Mul(LoadUpTo<V>(in + begin + i, left), opened), left);
      }
      const float* x = (job.gate_first ? out : in) + begin;
      const float square = SumOfSquares<V>(x, job.group, 0.0f) / static_cast<float>(job.group);
      const auto factor = V::Set(1.0f / std::sqrt(square + job.epsilon));
      const float* weight = job.weight + (job.weight_per_group ? begin : 0);
      for (int i = 0; i < job.group; i += 16) {
        const int left = job.group - i;
        auto y = V::Mul(V::Mul(LoadUpTo<V>(x + i, left), factor), LoadUpTo<V>(weight + i, left));
        if (!job.gate_first) y = V::Mul(y, Silu<V>(LoadUpTo<V>(gate + begin + i, left)));
        StoreUpTo<V>(out + begin + i, y, left);
      }
    }
  }
}

template <class V>
void Gate(const GateJob& job, int row_begin, int row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* in = job.in + row * job.in_stride;
    const float* gate = job.gate + row * job.gate_stride;
    float* out = job.out + row * job.out_stride;
    for (int i = 0; i < job.width; i += 16) {
      const int left = job.width - i;
      const auto x = LoadUpTo<V>(in + i, left);
      StoreUpTo<V>(out + i, GatedBySigmoid<V>(x, LoadUpTo<V>(gate + i, left)), left);
    }
  }
}

}  // namespace quire::kernels::cpu
