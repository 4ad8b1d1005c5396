// The kernel of a product's activation.
#pragma once

#include "kernels/cuda/ops/rows/activation.h"
#include "kernels/step_program.h"

namespace quire::kernels::cuda {

// Of any but kNone.
inline Activation KindOf(LinearOp::Activation activation) {
  switch (activation) {
    case LinearOp::Activation::kSiluGated:
      return Activation::kSiluGated;
    case LinearOp::Activation::kGeluTanhGated:
      return Activation::kGeluTanhGated;
    case LinearOp::Activation::kClampedGated:
      return Activation::kClampedGated;
    case LinearOp::Activation::kReluSquared:
      return Activation::kReluSquared;
    default:
      return Activation::kRelu;
  }
}

}  // namespace quire::kernels::cuda
