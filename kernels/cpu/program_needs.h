// What a step program asks of its machine, known before it is loaded. Pure functions of the
// program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

// How ops use a weight, which decides how it is kept.
struct WeightRole {
  bool matrix = false;
  bool gated = false;
  bool vector = false;
  bool latent = false;  // of one head of latent attention
  bool expert = false;
};
std::vector<WeightRole> FindRoles(const StepProgram& program);

// How many heads of latent attention one task takes: they read the same keys together. A step of so
// many tokens gives every thread a task, where that leaves enough of them.
int LatentHeadsOfTask(int heads, int64_t tokens, int threads);

// What the ops of adapters need at once.
struct LoraNeeds {
  int64_t inner_floats = 0;  // A · x of the tokens that are taken at a time
  int64_t tile_floats = 0;
  size_t jobs = 0;

  static LoraNeeds Of(const StepProgram& program, const ProgramOptions& options);
};

// Floats of every workspace buffer of a program, in the order of StepProgram::buffers.
int64_t BufferStride(int width);

}  // namespace quire::kernels::cpu
