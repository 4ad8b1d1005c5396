// The functions of recurrent layers' gates, with the bits of the CPU's (kernels/cpu/vec_math.h,
// kernels/cpu/recurrent_gates.h).
#pragma once

#include "kernels/cuda/device/numbers.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

// e^x; 0 below −87.336, held at e^88.02 above. NaN stays NaN. Cephes' expf.
QUIRE_DEVICE float Exp(float x) {
  constexpr float kLow = -87.3365478515625f;
  constexpr float kHigh = 88.02f;
  float clamped = x > kHigh ? kHigh : x;
  clamped = clamped < kLow ? kLow : clamped;
  const float shifted = device::Fma(clamped, 1.44269504088896341f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  float r = device::Fma(n, -0.693359375f, clamped);
  r = device::Fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = device::Fma(p, r, 1.3981999507e-3f);
  p = device::Fma(p, r, 8.3334519073e-3f);
  p = device::Fma(p, r, 4.1665795894e-2f);
  p = device::Fma(p, r, 1.6666665459e-1f);
  p = device::Fma(p, r, 5.0000001201e-1f);
  p = device::Fma(p, r * r, r + 1.0f);
  const float power = device::FloatOfBits((device::BitsOfFloat(shifted) << 23) + 0x3f800000u);
  return x < kLow ? 0.0f : p * power;
}

// x / (1 + e^−z); SiLU where z is x.
QUIRE_DEVICE float GatedBySigmoid(float x, float z) { return x / (1.0f + Exp(-z)); }
QUIRE_DEVICE float Silu(float x) { return GatedBySigmoid(x, x); }

QUIRE_DEVICE float Softplus(float x) {
  const float size = x < 0.0f ? -x : x;
  const double tail = sampling::Log(1.0 + static_cast<double>(sampling::ExpOfNegative(-size)));
  return (x > 0.0f ? x : 0.0f) + static_cast<float>(tail);
}

QUIRE_DEVICE float Sigmoid(float x) {
  const float e = sampling::ExpOfNegative(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

}  // namespace quire::kernels::cuda
