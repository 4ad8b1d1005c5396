// Weights of any format as bfloat16: the float32 that the format defines, rounded once.
//
// Pure; host code. The value of an element is that of kernels/README.md, rule 3.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/step_program.h"
#include "kernels/tensor.h"

namespace quire::kernels::cuda {

// To the nearest, ties to even; a NaN stays one.
uint16_t RoundToBf16(float value);

// Row `row` of `source` as float32: out has source.cols elements.
void ExpandRow(const WeightSource& source, int64_t row, std::span<float> out);

// Rows [begin, begin + out.size() / cols) of one part, rounded to bfloat16, end to end.
void ExpandRows(const WeightSource& source, int64_t begin, std::span<uint16_t> out);

}  // namespace quire::kernels::cuda
