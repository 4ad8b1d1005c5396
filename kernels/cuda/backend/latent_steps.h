// The steps of multi-head latent attention, as a device program has them.
//
// Values, and pure functions over step programs.
#pragma once

#include <string>
#include <vector>

#include "kernels/step_program.h"

namespace quire::kernels::cuda {

// The op, with the queries that head_linear reads in a separate buffer.
struct LatentAppendStep {
  LatentAppendOp op;
  BufferId q = kNoId;
  bool half = false;  // q is float16
};

// The weights of all heads, whose places in memory are in one table on the device.
struct HeadLinearStep {
  std::vector<WeightId> weights;
  size_t table = 0;  // of the program's tables of heads
  int n = 0;
  int k = 0;
  int in_dim = 0;
  bool half = false;  // in and the weights are float16
  BufferId in = kNoId;
  BufferId out = kNoId;
};

struct LatentAttentionStep {
  LatentAttentionOp op;
  bool half = false;  // out is float16
};

// Why no kernel computes a program's latents, or an op of them; empty: they do.
std::string RefuseLatents(const StepProgram& program);
std::string RefuseAppend(const LatentAppendOp& op);
std::string RefuseHeads(const StepProgram& program, const HeadLinearOp& op);

}  // namespace quire::kernels::cuda
