#include "kernels/cuda/backend/lowering.h"

#include <utility>

#include "kernels/ops.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kMaxHeadsPerKvHead = 16;

class Lowering {
 public:
  Lowering(const StepProgram& program, DeviceProgram& lowered)
      : program_(program), lowered_(lowered), pending_(program.buffers.size(), kNoId) {
    for (const Buffer& buffer : program.buffers) {
      lowered_.buffers.push_back({buffer.name, buffer.width, buffer.sampled_rows_only, false});
    }
    lowered_.weights.resize(program.weights.size());
    for (WeightRole& role : lowered_.weights) role.expand = program.dequantize_weights;
  }

  std::string Run() {
    if (program_.head_dim % 8 != 0 || program_.head_dim > kMaxHeadDim) {
      return "heads of " + std::to_string(program_.head_dim) +
             " elements: multiples of 8 up to 256 are served";
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
    for (const BufferId delta : pending_) {
      if (delta != kNoId) return "a sum is made that no op reads";
    }
    return {};
  }

 private:
  void Take(const EmbedOp& op) {
    const VocabularySlice slice = VocabularyOf(program_);
    BufferId out = op.out;
    pending_[out] = kNoId;
    UseTable(op.table);
    UseTable(op.positions);
    if (op.table != kNoId) {
      Emit(EmbedStep{op.table, false, slice.begin, slice.count, op.scale, out});
      if (op.positions == kNoId) return;
      out = AddDelta(op.out);
    }
    const int places = static_cast<int>(program_.weights[op.positions].rows);
    Emit(EmbedStep{op.positions, true, -op.position_offset, places, 1.0f, out});
  }

  void Take(const NormOp& op) {
    UseVector(op.weight);
    UseVector(op.bias);
    NormStep step{op.kind, op.weight, op.bias, op.epsilon, op.weight_offset, op.in, kNoId, op.out};
    step.delta = std::exchange(pending_[op.in], kNoId);
    if (op.accumulate) {
      Whole(op.out);
      step.out = AddDelta(op.out);
    } else {
      pending_[op.out] = kNoId;
    }
    Emit(step);
  }

  void Take(const LinearOp& op) {
    using Activation = LinearOp::Activation;
    Whole(op.in);
    UseMatrix(op.weight);
    UseVector(op.bias);
    const bool gated =
        op.activation == Activation::kSiluGated || op.activation == Activation::kGeluTanhGated;
    ProductStep product;
    product.weight = op.weight;
    product.bias = op.bias;
    product.accumulate = op.accumulate;
    product.relu = op.activation == Activation::kRelu;
    product.in = op.in;
    product.out = op.out;
    const Weight& weight = program_.weights[op.weight];
    if (weight.rows % 8 != 0 || weight.cols % 8 != 0) return Fail("its weight", weight);
    if (op.accumulate) {
      if (gated) return Fail("a gated sum is not computed");
      Whole(op.out);
    } else {
      pending_[op.out] = kNoId;
    }
    if (!gated) return Emit(product);
    product.out = Scratch(op.out, static_cast<int>(weight.rows));
    Emit(product);
    Emit(ActivationStep{op.activation, product.out, op.out});
  }

  void Take(const RopeAppendOp& op) {
    Whole(op.qkv);
    UseVector(op.q_norm);
    UseVector(op.k_norm);
    if (op.heads > kMaxHeadsPerKvHead * op.kv_heads) {
      return Fail("more than 16 heads share keys and values");
    }
    Emit(op);
  }

  void Take(const AttentionOp& op) {
    Whole(op.qkv);
    pending_[op.out] = kNoId;
    Emit(op);
  }

  void Take(const GatherRowsOp& op) {
    pending_[op.out] = kNoId;
    Emit(GatherStep{op.in, op.out});
    if (pending_[op.in] == kNoId) return;
    // The stream ends here: its last delta is gathered with it.
    const BufferId delta = std::exchange(pending_[op.in], kNoId);
    Emit(GatherStep{delta, AddDelta(op.out)});
  }

  void Take(const LogitsOp& op) {
    Whole(op.in);
    UseMatrix(op.head);
    UseVector(op.bias);
    const Weight& head = program_.weights[op.head];
    if (head.cols % 8 != 0) return Fail("its weight", head);
    DeviceBuffer& out = lowered_.buffers[op.out];
    out.is_float32 = true;
    out.width = (out.width + 7) / 8 * 8;  // whole vectors; kernels are told how many are ids
    Emit(op);
  }

  void Take(const SampleOp& op) { Emit(op); }

  void Take(const AllReduceOp& op) {
    const BufferId delta = std::exchange(pending_[op.buffer], kNoId);
    if (program_.ranks > 1) return Emit(SumStep{op.buffer, delta});
    if (delta != kNoId) Fail("a sum over one rank of what is still to be added");
  }

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

  // The delta of `buffer`, from now on to be added to it.
  BufferId AddDelta(BufferId buffer) {
    const DeviceBuffer& of = lowered_.buffers[buffer];
    const BufferId delta = FindOrAdd(of.name + "_delta", of.width, of.sampled_rows_only);
    pending_[buffer] = delta;
    return delta;
  }

  BufferId FindOrAdd(const std::string& name, int width, bool sampled) {
    auto& buffers = lowered_.buffers;
    for (size_t id = program_.buffers.size(); id < buffers.size(); ++id) {
      if (buffers[id].name == name) return static_cast<BufferId>(id);
    }
    buffers.push_back({name, width, sampled, false});
    return static_cast<BufferId>(buffers.size()) - 1;
  }

  // The buffer is read or added to as it is.
  void Whole(BufferId buffer) {
    if (pending_[buffer] != kNoId) Fail("it reads what a norm or a position is still added to");
  }

  void Fail(const char* why) {
    if (error_.empty()) error_ = why;
  }
  void Fail(const char* what, const Weight& weight) {
    if (!error_.empty()) return;
    error_ = std::string(what) + " " + weight.name + " is [" + std::to_string(weight.rows) + ", " +
             std::to_string(weight.cols) + "]; multiples of 8 are served";
  }

  const StepProgram& program_;
  DeviceProgram& lowered_;
  std::vector<BufferId> pending_;  // by buffer of the step program: its delta
  WeightRole nothing_;
  std::string error_;
};

}  // namespace

std::string Lower(const StepProgram& program, DeviceProgram& lowered) {
  return Lowering(program, lowered).Run();
}

}  // namespace quire::kernels::cuda
