// Products that adapters may change: which modules' rows each has, and the ops behind them.
#include <utility>

#include "common/check.h"
#include "worker/model/program_builder.h"

namespace quire::model {

using kernels::LoraTarget;
using kernels::WeightId;

void ProgramBuilder::Remember(WeightId id, Origin origin) {
  if (adapter_pairs_.has_value() && id != kernels::kNoId) origins_[id] = std::move(origin);
}

// The rows of a stack as an adapter's file has them. Adapters are trained on checkpoints of Hugging
// Face, whatever file the model itself comes from: where those keep rows of q and k in neighbouring
// pairs, the program has them in halves.
void ProgramBuilder::AddRuns(const Stack& stack, LoraTarget& target) const {
  const int64_t count = stack.kept.count < 0 ? stack.rows : stack.kept.count;
  const bool turns = stack.part == Part::kQuery || stack.part == Part::kKey;
  if (!*adapter_pairs_ || !turns) {
    target.row_runs.push_back({stack.kept.begin, count});
    return;
  }
  for (int64_t row = 0; row < count; ++row) {
    target.row_runs.push_back({stack.kept.begin + PairedRow(row), 1});
  }
}

std::optional<kernels::LoraOp> ProgramBuilder::LoraOf(const kernels::LinearOp& op) {
  const auto found = origins_.find(op.weight);
  if (found == origins_.end() || !status_.ok()) return std::nullopt;
  // Rows that are gathered for logits have left their sequences behind.
  if (program_.buffers[static_cast<size_t>(op.in)].sampled_rows_only) return std::nullopt;
  const Origin& origin = found->second;
  kernels::LoraOp lora;
  lora.scale = op.scale;
  lora.in = op.in;
  lora.out = op.out;
  int64_t column = 0;
  for (const Stack& stack : origin.stacks) {
    std::vector<std::string> modules = ModuleNames(naming_, stack.part, origin.place);
    if (modules.empty()) return std::nullopt;
    auto& targets = program_.lora_targets;
    // Neighbours of one module are one slice.
    if (lora.slices.empty() || targets.back().modules != modules) {
      lora.slices.push_back({static_cast<int>(targets.size()), static_cast<int>(column)});
      LoraTarget target;
      target.modules = std::move(modules);
      target.rows = stack.rows;
      target.cols = origin.cols;
      target.first_col = origin.kept.count < 0 ? 0 : origin.kept.begin;
      target.col_count = origin.kept.count < 0 ? origin.cols : origin.kept.count;
      targets.push_back(std::move(target));
    }
    const int64_t before = targets.back().Width();
    AddRuns(stack, targets.back());
    column += targets.back().Width() - before;
  }
  return lora;
}

// An activation waits for what the adapter adds.
void ProgramBuilder::Add(kernels::LinearOp op) {
  std::optional<kernels::LoraOp> lora = LoraOf(op);
  if (!lora.has_value() || op.activation == kernels::LinearOp::Activation::kNone) {
    program_.ops.emplace_back(op);
    if (lora.has_value()) program_.ops.emplace_back(*std::move(lora));
    return;
  }
  QUIRE_CHECK_MSG(!op.accumulate && op.scale == 1.0f, "an activation has neither sum nor scale");
  const auto out = static_cast<size_t>(op.out);
  const kernels::ActivateOp activate{
      op.activation,
      BufferOnce("before_" + program_.buffers[out].name,
                 program_.weights[static_cast<size_t>(op.weight)].rows),
      op.out};
  op.activation = kernels::LinearOp::Activation::kNone;
  op.out = lora->out = activate.in;
  program_.ops.emplace_back(op);
  program_.ops.emplace_back(*std::move(lora));
  program_.ops.emplace_back(activate);
}

}  // namespace quire::model
