// The output of a norm or a look-up.
#pragma once

#include <cstdint>

namespace quire::kernels::cuda {

// 16 bits for a product to read, or float32, the residual stream's type; or both, without a sum:
// the same row for a product and for a router.
struct RowsOut {
  uint16_t* narrow = nullptr;  // bfloat16, or float16 of at most ±65,504
  bool half = false;           // float16
  float* float32 = nullptr;
  bool accumulate = false;  // float32 += rows
  float scale = 1.0f;       // times the rows, or the sum
};

}  // namespace quire::kernels::cuda
