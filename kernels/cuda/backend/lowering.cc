#include "kernels/cuda/backend/lowering.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/backend/expert_stacks.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/recurrent/gated_norm.h"
#include "kernels/cuda/ops/recurrent/recurrence.h"
#include "kernels/ops.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kMaxHeadDim = 512;
constexpr int kMaxHeadsPerKvHead = 16;

int Whole(int width) { return (width + 7) / 8 * 8; }

class Lowering {
 public:
  Lowering(const StepProgram& program, DeviceProgram& lowered)
      : program_(program),
        lowered_(lowered),
        rounded_(program.buffers.size(), kNoId),
        queries_(program.buffers.size(), kNoId),
        norms_(program.buffers.size(), kNoId),
        stale_(program.buffers.size(), false) {
    for (const Buffer& buffer : program.buffers) {
      lowered_.buffers.push_back(
          {buffer.name, Whole(buffer.width), buffer.sampled_rows_only, false});
    }
    for (const Op& op : program.ops) {
      std::visit([this](const auto& one) { MarkFloats(one); }, op);
    }
    lowered_.weights.resize(program.weights.size());
    for (WeightRole& role : lowered_.weights) {
      role.expand = program.dequantize_weights;
      role.by_codes = program.round_activations;
    }
  }

  std::string Run() {
    if (program_.latents) {
      if (std::string refusal = RefuseLatents(program_); !refusal.empty()) return refusal;
    } else {
      for (const int head_dim : {program_.head_dim, program_.full.head_dim}) {
        if (head_dim % 8 == 0 && head_dim <= kMaxHeadDim) continue;
        return "heads of " + std::to_string(head_dim) +
               " elements: multiples of 8 up to 512 are served";
      }
    }
    bool sampled = false;
    for (const Op& op : program_.ops) {
      if (!sampled && std::holds_alternative<GatherRowsOp>(op)) {
        sampled = true;
        lowered_.first_sampled = lowered_.steps.size();
      }
      std::visit([this](const auto& one) { Take(one); }, op);
      if (!error_.empty()) return std::string(OpName(op)) + ": " + error_;
    }
    if (!sampled) lowered_.first_sampled = lowered_.steps.size();
    return {};
  }

 private:
  void MarkFloats(const EmbedOp& op) { Float(op.out); }
  void MarkFloats(const NormOp& op) {
    Float(op.in);
    if (op.accumulate) Float(op.out);
  }
  void MarkFloats(const LinearOp& op) {
    if (op.accumulate) Float(op.out);
  }
  void MarkFloats(const RopeAppendOp& op) { Float(op.qkv); }
  void MarkFloats(const HeadSquaresOp& op) {
    Float(op.qkv);
    Float(op.out);
  }
  void MarkFloats(const LatentAppendOp& op) {
    Float(op.queries);
    Float(op.latents);
  }
  void MarkFloats(const GatherRowsOp& op) {
    Float(op.in);
    Float(op.out);
  }
  void MarkFloats(const LogitsOp& op) { Float(op.out); }
  void MarkFloats(const AllReduceOp& op) { Float(op.buffer); }
  void MarkFloats(const MoeOp& op) { Float(op.out); }
  void MarkFloats(const CausalConvOp& op) { Float(op.in); }
  void MarkFloats(const RecurrenceOp& op) {
    Float(op.in);
    Float(op.gates);
    Float(op.out);
    lowered_.buffers[op.factors].width = 8;  // factors stay in shared memory
  }
  void MarkFloats(const GatedNormOp& op) {
    Float(op.in);
    Float(op.gate);
  }
  void MarkFloats(const GateOp& op) { Float(op.gate); }
  void MarkFloats(const LoraOp& op) { Float(op.out); }
  void MarkFloats(const SliceGateOp& op) {
    Float(op.gate);
    Float(op.with);
  }
  template <class Other>
  void MarkFloats(const Other&) {}
  void Float(BufferId buffer) { lowered_.buffers[buffer].is_float32 = true; }

  void Take(const EmbedOp& op) {
    const VocabularySlice slice = VocabularyOf(program_);
    Written(op.out);
    UseTable(op.table);
    UseTable(op.positions);
    if (op.table != kNoId) {
      Emit(EmbedStep{op.table, false, slice.begin, slice.count, op.scale, false, op.out});
    }
    if (op.positions == kNoId) return;
    const int places = static_cast<int>(program_.weights[op.positions].rows);
    Emit(EmbedStep{op.positions, true, -op.position_offset, places, 1.0f, op.table != kNoId,
                   op.out});
  }

  void Take(const NormOp& op) {
    UseVector(op.weight);
    UseVector(op.bias);
    const int width = program_.buffers[op.in].width;
    if (op.in == op.out) return Fail("a norm in place is not computed");
    if (width % 8 != 0 && op.kind != NormOp::Kind::kRms) {
      return Fail("a layer norm of rows that are no multiple of 8");
    }
    if (op.pieces > 1 && width % (8 * op.pieces) != 0) {
      return Fail("pieces of a norm that are no multiple of 8");
    }
    Fresh(op.in);
    Written(op.out);
    Emit(NormStep{op.kind, op.weight, op.bias, op.epsilon, op.weight_offset, op.accumulate, false,
                  op.in, op.out, width, op.pieces, op.scale});
    norms_[op.out] = static_cast<int>(lowered_.steps.size()) - 1;
  }

  void Take(const LinearOp& op) {
    using Activation = LinearOp::Activation;
    UseMatrix(op.weight);
    UseVector(op.bias);
    const bool gated = LinearOp::IsGated(op.activation);  // by a launch of its own
    ProductStep product;
    product.weight = op.weight;
    product.bias = op.bias;
    product.scale = op.scale;
    product.accumulate = op.accumulate;
    product.relu_squared = op.activation == Activation::kReluSquared;
    product.relu = product.relu_squared || op.activation == Activation::kRelu;
    product.in = Rounded(op.in);
    product.out = op.out;
    const Weight& weight = program_.weights[op.weight];
    // Rows and columns are padded with zeros, but not between gate and up.
    if (gated && weight.rows % 16 != 0) return Fail("its weight", weight);
    if (!(op.scale > 0.0f)) return Fail("a scale that is not above 0");
    if (op.accumulate && gated) return Fail("a gated sum is not computed");
    Written(op.out);
    if (!gated) return Emit(product);
    if (lowered_.buffers[op.out].is_float32) return Fail("a norm reads what is gated");
    product.out = Scratch(op.out, static_cast<int>(weight.rows));
    Emit(product);
    Emit(ActivationStep{op.activation, product.out, op.out});
  }

  void Take(const SliceGateOp& op) {
    if (program_.buffers[op.gate].width % 8 != 0) return FailWidth(op.gate);
    if (op.first % 8 != 0) return Fail("a slice that begins at no multiple of 8");
    Fresh(op.gate);
    Fresh(op.with);
    Written(op.gate);
    Emit(SliceGateStep{op, RoundedAlone(op.gate)});
  }

  void Take(const HeadSquaresOp& op) {
    Fresh(op.qkv);
    Written(op.out);
    Emit(op);
  }

  void Take(const RopeAppendOp& op) {
    UseVector(op.q_norm);
    UseVector(op.k_norm);
    if (op.rope != kNoId && program_.ropes[op.rope].rotary_dim % 8 != 0) {
      return Fail("a part of a head that turns is no multiple of 8");
    }
    queries_[op.qkv] = QueriesOf(op.heads * op.head_dim);
    Emit(RopeStep{op, queries_[op.qkv]});
  }

  void Take(const AttentionOp& op) {
    if (op.sinks != kNoId && op.head_dim > kMostSinkHeadDim) {
      return Fail("sinks of heads above 128 elements have no kernel on this device yet");
    }
    if (op.heads > kMaxHeadsPerKvHead * op.kv_heads) {
      return Fail("more than 16 heads share keys and values");
    }
    UseVector(op.sinks);
    AttentionOp step = op;
    step.qkv = queries_[op.qkv];
    if (step.qkv == kNoId) return Fail("its keys are in no page yet");
    if (lowered_.buffers[op.out].is_float32) return Fail("a norm reads what it makes");
    Written(op.out);
    Emit(step);
  }

  void Take(const GatherRowsOp& op) {
    Fresh(op.in);
    Written(op.out);
    Emit(GatherStep{op.in, op.out});
  }

  void Take(const LogitsOp& op) {
    UseMatrix(op.head);
    UseVector(op.bias);
    const Weight& head = program_.weights[op.head];
    if (head.cols % 8 != 0) return Fail("its weight", head);
    DeviceBuffer& out = lowered_.buffers[op.out];
    out.width = (out.width + 7) / 8 * 8;  // whole vectors; kernels get the number of ids
    LogitsOp step = op;
    step.in = Rounded(op.in);
    Emit(step);
  }

  void Take(const SampleOp& op) { Emit(op); }

  void Take(const AllReduceOp& op) {
    if (program_.ranks == 1) return;
    Written(op.buffer);
    Emit(SumStep{op.buffer});
  }

  void Take(const MoeOp& op) {
    for (const WeightId id : {op.router, op.router_bias, op.selection_bias, op.expert_scales}) {
      UseVector(id);
    }
    UseExperts(op, &MoeOp::Expert::gate_up, true);
    UseExperts(op, &MoeOp::Expert::down, true);
    UseExperts(op, &MoeOp::Expert::gate_up_bias, false);
    UseExperts(op, &MoeOp::Expert::down_bias, false);
    for (const WeightId id : {op.experts.front().gate_up, op.experts.front().down}) {
      const Weight& weight = program_.weights[id];
      if (weight.rows % 8 != 0 || weight.cols % 8 != 0) return Fail("its weight", weight);
    }
    MoeStep step{op};
    step.op.router_in = RouterRows(op.router_in == kNoId ? op.in : op.router_in);
    step.op.in = Rounded(op.in);
    Written(op.out);
    Emit(step);
  }

  void Take(const LatentAppendOp& op) {
    if (error_ = RefuseAppend(op); !error_.empty()) return;
    UseVector(op.norm);
    Fresh(op.queries);
    Fresh(op.latents);
    queries_[op.queries] = FindOrAdd("queries", op.heads * op.query_dim, false);
    Emit(LatentAppendStep{op, queries_[op.queries]});
  }

  void Take(const HeadLinearOp& op) {
    if (error_ = RefuseHeads(program_, op); !error_.empty()) return;
    for (const WeightId id : op.weights) {
      UseMatrix(id);
      lowered_.weights[id].expand = lowered_.weights[id].of_head = true;
    }
    const Weight& first = program_.weights[op.weights.front()];
    HeadLinearStep step{op.weights, head_tables_++, static_cast<int>(first.rows),
                        static_cast<int>(first.cols)};
    step.in_dim = program_.buffers[op.in].width / static_cast<int>(op.weights.size());
    step.in = queries_[op.in] != kNoId ? queries_[op.in] : op.in;
    step.out = op.out;
    if (lowered_.buffers[step.in].is_float32 || lowered_.buffers[step.out].is_float32) {
      return Fail("a norm reads what heads make");
    }
    Written(op.out);
    Emit(step);
  }

  void Take(const LatentAttentionOp& op) {
    if (lowered_.buffers[op.out].is_float32) return Fail("a norm reads what it makes");
    Written(op.out);
    Emit(LatentAttentionStep{op});
  }

  void Take(const CausalConvOp& op) {
    UseVector(op.weight);
    UseVector(op.bias);
    if (program_.states[static_cast<size_t>(op.layer)].taps < 2) {
      return Fail("a convolution of one tap has no kernel on this device yet");
    }
    if (lowered_.buffers[op.out].width % 8 != 0) return FailWidth(op.out);
    Fresh(op.in);
    Written(op.out);
    Emit(RecurrentStep(op));
  }

  void Take(const RecurrenceOp& op) {
    UseVector(op.decay);
    UseVector(op.bias);
    UseVector(op.skip);
    if (op.key_dim > kMostKeyDim) {
      return Fail("heads of more than 256 keys have no kernel on this device yet");
    }
    Fresh(op.in);
    Fresh(op.gates);
    Written(op.out);
    Emit(RecurrentStep(op));
  }

  void Take(const GatedNormOp& op) {
    UseVector(op.weight);
    if (op.group < 8 || op.group > kMostGatedNormGroup) {
      return Fail(
          "gated norms of fewer than 8 or more than 24576 elements have no kernel on this device "
          "yet");
    }
    Fresh(op.in);
    Fresh(op.gate);
    Written(op.out);
    GatedNormOp step = op;
    if (lowered_.buffers[op.out].is_float32) step.out = RoundedAlone(op.out);
    Emit(RecurrentStep(step));
  }

  void Take(const GateOp& op) {
    if (lowered_.buffers[op.in].is_float32 || lowered_.buffers[op.out].is_float32) {
      return Fail("a norm reads what it makes");
    }
    if (lowered_.buffers[op.out].width % 8 != 0) return FailWidth(op.out);
    Fresh(op.gate);
    Written(op.out);
    Emit(RecurrentStep(op));
  }

  void Take(const LoraOp& op) {
    LoraStep step{op, {}, lora_steps_++};
    for (const LoraOp::Slice& slice : op.slices) {
      const LoraTarget& target = program_.lora_targets[static_cast<size_t>(slice.target)];
      step.widths.push_back(static_cast<int>(target.Width()));
    }
    step.op.in = Rounded(op.in);
    Written(op.out);
    Emit(step);
  }

  // What a product with this activation does: the halves of a gated one are rounded before, the
  // square of ReLU is taken of float32.
  void Take(const ActivateOp& op) {
    if (lowered_.buffers[op.out].is_float32) return Fail("a norm reads what it makes");
    const bool squared = op.activation == LinearOp::Activation::kReluSquared;
    const BufferId in = squared ? op.in : Rounded(op.in);
    Written(op.out);
    Emit(ActivationStep{op.activation, in, op.out});
  }

  void Take(const CopyOp&) { FailHeads(); }
  void Take(const InputOp&) { FailHeads(); }
  void FailHeads() { Fail("draft heads have no kernel on this device yet"); }

  // Without a weight what is returned goes nowhere.
  WeightRole& UseVector(WeightId id) {
    WeightRole& role = id == kNoId ? nothing_ : lowered_.weights[id];
    role.used = true;
    return role;
  }
  void UseMatrix(WeightId id) { UseVector(id).is_matrix = true; }
  void UseTable(WeightId id) {
    UseMatrix(id);
    UseVector(id).is_table = true;
  }

  void UseExperts(const MoeOp& op, WeightId MoeOp::Expert::*kind, bool is_matrix) {
    const std::string refusal = StackExperts(program_, op, kind, is_matrix, lowered_);
    if (!refusal.empty()) Fail(refusal.c_str());
  }

  template <class Step>
  void Emit(Step step) {
    lowered_.steps.emplace_back(std::move(step));
  }

  // A buffer beside `like`, of another width; one for each width and kind of rows.
  BufferId Scratch(BufferId like, int width) {
    const bool sampled = lowered_.buffers[like].sampled_rows_only;
    const std::string name =
        std::string(sampled ? "sampled_" : "") + "product_" + std::to_string(width);
    return FindOrAdd(name, width, sampled);
  }

  // The queries of one layer at a time; those of layers with other heads have their own.
  BufferId QueriesOf(int width) {
    const bool other = width != program_.heads * program_.head_dim;
    return FindOrAdd(other ? "queries_" + std::to_string(width) : "queries", width, false);
  }

  // `buffer` as a product reads it: itself, or what was made of it since it was written last.
  BufferId Rounded(BufferId buffer) {
    const DeviceBuffer of = lowered_.buffers[buffer];
    if (!of.is_float32) return buffer;
    if (rounded_[buffer] == kNoId) {
      rounded_[buffer] = FindOrAdd(of.name + "_rounded", of.width, of.sampled_rows_only);
      Emit(RoundStep{buffer, rounded_[buffer]});
    }
    return rounded_[buffer];
  }
  // What a step writes in 16 bits alone in place of a float32 buffer.
  BufferId RoundedAlone(BufferId buffer) {
    const DeviceBuffer of = lowered_.buffers[buffer];
    rounded_[buffer] = FindOrAdd(of.name + "_rounded", of.width, of.sampled_rows_only);
    stale_[buffer] = true;
    return rounded_[buffer];
  }
  void Written(BufferId buffer) {
    rounded_[buffer] = norms_[buffer] = kNoId;
    stale_[buffer] = false;
  }
  // What is read as float32 must not be there in 16 bits alone.
  void Fresh(BufferId buffer) {
    if (stale_[buffer]) Fail("only a product may read what is gated");
  }

  // `buffer` in float32: itself, or a copy that the norm which makes it writes beside it.
  BufferId RouterRows(BufferId buffer) {
    const DeviceBuffer of = lowered_.buffers[buffer];
    Fresh(buffer);
    if (of.is_float32) return buffer;
    if (norms_[buffer] == kNoId) {
      Fail("a router reads what no norm makes");
      return buffer;
    }
    auto& norm = std::get<NormStep>(lowered_.steps[static_cast<size_t>(norms_[buffer])]);
    norm.copy = FindOrAdd(of.name + "_float32", of.width, of.sampled_rows_only);
    lowered_.buffers[norm.copy].is_float32 = true;
    return norm.copy;
  }

  BufferId FindOrAdd(const std::string& name, int width, bool sampled) {
    auto& buffers = lowered_.buffers;
    for (size_t id = program_.buffers.size(); id < buffers.size(); ++id) {
      if (buffers[id].name == name) return static_cast<BufferId>(id);
    }
    buffers.push_back({name, width, sampled, false});
    return static_cast<BufferId>(buffers.size()) - 1;
  }

  void Fail(const char* why) {
    if (error_.empty()) error_ = why;
  }
  void FailWidth(BufferId buffer) {
    if (!error_.empty()) return;
    error_ = "rows of " + std::to_string(lowered_.buffers[buffer].width) +
             " elements: multiples of 8 are served";
  }
  void Fail(const char* what, const Weight& weight) {
    if (!error_.empty()) return;
    error_ = std::string(what) + " " + weight.name + " is [" + std::to_string(weight.rows) + ", " +
             std::to_string(weight.cols) + "]; multiples of 8 are served";
  }

  const StepProgram& program_;
  DeviceProgram& lowered_;
  std::vector<BufferId> rounded_;  // by buffer of the step program: in bfloat16, if it is so now
  std::vector<BufferId> queries_;  // by buffer of the step program: those that were turned of it
  std::vector<int> norms_;   // by buffer of the step program: the step whose norm made it, if any
  std::vector<bool> stale_;  // … what it holds now is in rounded_ alone
  size_t head_tables_ = 0;
  int lora_steps_ = 0;
  WeightRole nothing_;
  std::string error_;
};

}  // namespace

std::string Lower(const StepProgram& program, DeviceProgram& lowered) {
  const std::string refusal = Lowering(program, lowered).Run();
  return refusal.empty() ? "" : refusal + "; use --device cpu";
}

}  // namespace quire::kernels::cuda
