// The weights of all experts of a mixture as stacks, for the lowering.
#pragma once

#include <string>

#include "kernels/cuda/backend/lowering.h"

namespace quire::kernels::cuda {

// Adds the weights of one kind of all experts, as a stack that is next to each other in memory;
// nothing where the experts have none. Returns why it cannot; empty: it has.
std::string StackExperts(const StepProgram& program, const MoeOp& op, WeightId MoeOp::Expert::*kind,
                         bool is_matrix, DeviceProgram& lowered);

}  // namespace quire::kernels::cuda
