// Which products of a lowered program multiply in float16.
#pragma once

#include "kernels/cuda/backend/lowering.h"

namespace quire::kernels::cuda {

// Marks norms and weights of a lowered program as float16, as lowering.h says. Without it all
// products are of bfloat16.
void ChooseHalves(const StepProgram& program, DeviceProgram& lowered);

}  // namespace quire::kernels::cuda
