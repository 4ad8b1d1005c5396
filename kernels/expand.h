// Weights of any format as float32, the number that the format defines: for GPUs that keep floats,
// and for what a quantised file lost.
//
// Pure; host code. Rule 3 of kernels/README.md defines the value of an element.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace quire::kernels {

// Row `row` of `source`: out has source.cols elements.
void ExpandRow(const WeightSource& source, int64_t row, std::span<float> out);

}  // namespace quire::kernels
