// Weights of any format as bfloat16 or float16: the float32 that the format defines, rounded once.
//
// Pure; host code. Rule 3 of kernels/README.md defines the value of an element.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/step_program.h"
#include "kernels/tensor.h"

namespace quire::kernels::cuda {

// To the nearest, ties to even; a NaN stays one.
uint16_t RoundToBf16(float value);

// The same to float16; values beyond ±65,504 become that.
uint16_t RoundToF16(float value);

// Rows [begin, begin + out.size() / cols) of one part, end to end, rounded to bfloat16, or to
// float16 where `half`.
void ExpandRows(const WeightSource& source, int64_t begin, bool half, std::span<uint16_t> out);

}  // namespace quire::kernels::cuda
