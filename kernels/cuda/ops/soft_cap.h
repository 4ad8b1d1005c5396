// exp of values that are not positive, and the soft cap of scores and logits.
#pragma once

#include "kernels/cuda/device/kernel.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

QUIRE_DEVICE float ExpOf(float x) { return sampling::ExpOfNegative(x); }

// cap · tanh(x / cap)
QUIRE_DEVICE float SoftCap(float x, float cap) {
  const float y = x / cap;
  const float e = ExpOf(y > 0.0f ? -2.0f * y : 2.0f * y);
  const float t = (1.0f - e) / (1.0f + e);
  return cap * (y > 0.0f ? t : -t);
}

}  // namespace quire::kernels::cuda
