// A step program as kernels of this device: what is launched, in order, over which buffers.
//
// Pure. Rows are bfloat16, logits float32. A product adds to its output itself. What a norm or a
// table of positions adds to a buffer is kept apart as the buffer's delta, and the norm that reads
// the buffer next adds it, so that the residual stream is read and written once for both.
//
// Invariants:
// 1. A buffer with a delta is read by a norm, a gather or a sum over ranks alone.
// 2. Every step is a launch of kernels/cuda/ops, a collective, or a copy: no op is computed by the
//    host.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kernels/step_program.h"

namespace quire::kernels::cuda {

struct DeviceBuffer {
  std::string name;
  int width = 0;
  bool sampled_rows_only = false;
  bool is_float32 = false;
};

// out = table[id − first_id] · scale, by token or by position; zero for ids outside the table.
struct EmbedStep {
  WeightId table = kNoId;
  bool by_position = false;
  int first_id = 0;
  int ids = 0;
  float scale = 1.0f;
  BufferId out = kNoId;
};

// in += delta, unless it is absent; out = norm(in).
struct NormStep {
  NormOp::Kind kind = NormOp::Kind::kRms;
  WeightId weight = kNoId;
  WeightId bias = kNoId;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
  BufferId in = kNoId;
  BufferId delta = kNoId;
  BufferId out = kNoId;
};

// out = in · weightᵀ + bias, through a ReLU; or out += that.
struct ProductStep {
  WeightId weight = kNoId;
  WeightId bias = kNoId;
  bool accumulate = false;
  bool relu = false;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// The gated activation of a product's output: halves the width.
struct ActivationStep {
  LinearOp::Activation kind = LinearOp::Activation::kNone;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

struct GatherStep {
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// The sum over the ranks of buffer + delta, into buffer.
struct SumStep {
  BufferId buffer = kNoId;
  BufferId delta = kNoId;
};

using DeviceStep = std::variant<EmbedStep, NormStep, ProductStep, ActivationStep, RopeAppendOp,
                                AttentionOp, GatherStep, LogitsOp, SampleOp, SumStep>;

// How ops use a weight, which decides how it is kept.
struct WeightRole {
  bool used = false;
  bool is_matrix = false;  // rows padded to a multiple of 8
  bool is_table = false;   // single rows of it are read
  bool expand = false;     // quantised parts become bfloat16
};

struct DeviceProgram {
  std::vector<DeviceBuffer> buffers;  // those of the step program first, with the same ids
  std::vector<WeightRole> weights;    // by weight of the step program
  std::vector<DeviceStep> steps;
  size_t first_sampled = 0;  // the first step over the rows whose logits are wanted
};

// Empty when it went well; else which op this device does not compute, and why.
std::string Lower(const StepProgram& program, DeviceProgram& lowered);

}  // namespace quire::kernels::cuda
