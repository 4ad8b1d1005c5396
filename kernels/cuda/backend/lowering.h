// A step program as kernels of this device: what is launched, in order, over which buffers.
//
// Pure. Products and attention multiply bfloat16, except for norms' rows and the weights that they
// meet: those are float16 where the file's weights are quantised or float16, so that an eighth of
// the error is left. A norm's rows are at most √width times its largest weight, and such weights
// are whole multiples of float16's smallest number, so that none loses more than in bfloat16;
// values beyond ±65,504 become that. The residual stream is float32, and so is what only norms and
// ropes read: each is rounded once, on its way into a product. The two halves of a gated product,
// the widest rows there are, are bfloat16 too: float32 would gain less than a tenth of a per cent
// there (README).
//
// Invariants:
// 1. A step reads a buffer in the buffer's own type, and adds only to float32.
// 2. A weight has one type, and so have a norm's rows: where one product of them must be bfloat16,
//    all are.
// 3. Every step is a launch of kernels/cuda/ops, a collective, or a copy: the host computes no op.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/backend/latent_steps.h"
#include "kernels/step_program.h"

namespace quire::kernels::cuda {

struct DeviceBuffer {
  std::string name;
  int width = 0;  // a multiple of 8: products and norms write zeros behind the program's rows
  bool sampled_rows_only = false;
  bool is_float32 = false;
};

// out = table[id − first_id] · scale, by token or by position; zero for ids outside the table. Or
// out += that.
struct EmbedStep {
  WeightId table = kNoId;
  bool by_position = false;
  int first_id = 0;
  int ids = 0;
  float scale = 1.0f;
  bool accumulate = false;
  BufferId out = kNoId;
};

// out = norm(in), or out += that.
struct NormStep {
  NormOp::Kind kind = NormOp::Kind::kRms;
  WeightId weight = kNoId;
  WeightId bias = kNoId;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
  bool accumulate = false;
  bool half = false;  // out is float16
  BufferId in = kNoId;
  BufferId out = kNoId;
  int width = 0;  // of the step program's rows
  int pieces = 1;
  float scale = 1.0f;
  BufferId copy = kNoId;  // the same rows in float32, for a router
};

// out = in, rounded to bfloat16.
struct RoundStep {
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// out = (in · weightᵀ + bias) · scale, through a ReLU, which may be squared; or out += that.
struct ProductStep {
  WeightId weight = kNoId;
  WeightId bias = kNoId;
  float scale = 1.0f;  // above 0
  bool accumulate = false;
  bool relu = false;
  bool relu_squared = false;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// The activation of a product's output; a gated one halves the width. The square of ReLU may read
// float32.
struct ActivationStep {
  LinearOp::Activation kind = LinearOp::Activation::kNone;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// The op, with the queries that attention reads in a separate buffer.
struct RopeStep {
  RopeAppendOp op;
  BufferId q = kNoId;
};

// The op, whose experts read op.in as products do, and whose router reads op.router_in: float32.
struct MoeStep {
  MoeOp op;
};

// The op, with what it makes in 16 bits in a buffer beside its own.
struct SliceGateStep {
  SliceGateOp op;
  BufferId out = kNoId;
};

struct GatherStep {
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// The op, over rows as products read them.
struct LoraStep {
  LoraOp op;
  std::vector<int> widths;  // by slice
  int place = 0;            // among the steps of its kind
  bool half = false;        // its rows are float16, and so is A
};

// The sum over the ranks, in place.
struct SumStep {
  BufferId buffer = kNoId;
};

// The ops of recurrent layers, and gated attention. What a gated norm writes is of 16 bits, in a
// buffer beside that of its input where the op works in place.
using RecurrentStep = std::variant<CausalConvOp, RecurrenceOp, GatedNormOp, GateOp>;

// `qkv` of an attention is the buffer of its queries alone.
using DeviceStep =
    std::variant<EmbedStep, NormStep, RoundStep, ProductStep, ActivationStep, RopeStep, AttentionOp,
                 GatherStep, LogitsOp, SampleOp, SumStep, MoeStep, RecurrentStep, LatentAppendStep,
                 HeadLinearStep, LatentAttentionStep, HeadSquaresOp, SliceGateStep, LoraStep>;

// How ops use a weight, which decides how it is kept.
struct WeightRole {
  bool used = false;
  bool is_matrix = false;  // rows padded to a multiple of 8; else a vector, in float32
  bool is_table = false;   // single rows of it are read
  bool expand = false;     // quantised parts are expanded
  bool of_head = false;    // … because products of heads have no other form
  bool half = false;       // its products are in float16, and so is it
  bool by_codes = false;   // parts that ask for rounded inputs are multiplied with codes of them
  int stack = kNoId;       // of DeviceProgram::stacks
  int place = 0;           // in it
  bool mixed = false;      // those of its stack are of several types, and are expanded
};

struct DeviceProgram {
  std::vector<DeviceBuffer> buffers;  // those of the step program first, with the same ids
  std::vector<WeightRole> weights;    // by weight of the step program
  // Weights of all experts of a mixture, of one shape and form, next to each other in memory.
  std::vector<std::vector<WeightId>> stacks;
  std::vector<DeviceStep> steps;
  size_t first_sampled = 0;  // the first step over the rows whose logits are needed
};

// Empty on success; otherwise which op this device does not compute, why, and what works.
std::string Lower(const StepProgram& program, DeviceProgram& lowered);

}  // namespace quire::kernels::cuda
