// Where a norm or a look-up puts its rows.
#pragma once

#include <cstdint>

namespace quire::kernels::cuda {

// One of the two is null: bfloat16 for a product to read, or float32, the residual stream's type.
struct RowsOut {
  uint16_t* bf16 = nullptr;
  float* float32 = nullptr;
  bool accumulate = false;  // float32 += rows
};

}  // namespace quire::kernels::cuda
