// What a program's weights ask for in the class of numerics w8a8, in words.
#pragma once

#include <string>

#include "kernels/step_program.h"

namespace quire::kernels {

// "int8 per token"; several of them are joined by "and"; empty: they ask for nothing.
std::string DescribeRoundings(const StepProgram& program);
// Why the class is not for this program where nothing is asked for; empty: something is.
std::string RefuseWithoutRoundings(const StepProgram& program);

}  // namespace quire::kernels
