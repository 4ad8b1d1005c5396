// A float64 interpreter of step programs: one sequence, no pages, no tiles. What the kernels are
// held to.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kv_layout.h"
#include "kernels/step_program.h"

namespace quire::kernels::test {

// The experts that a token uses and their weights, in the order of choice. `selection_bias` may be
// empty.
std::vector<std::pair<int, double>> ChosenExperts(const RoutingRule& rule,
                                                  const std::vector<double>& logits,
                                                  const std::vector<double>& selection_bias);

class DoubleModel {
 public:
  // Keys and values are rounded to what pages of that type hold, by the formats' definitions.
  explicit DoubleModel(const StepProgram& program, KvType kv = KvType::kF32);
  // The inputs of products with quantised weights become what int8 activations are.
  void QuantiseInputs() { quantise_inputs_ = true; }
  // [tokens][input_width] what InputOps read; they outlive the model.
  void SetInputs(std::span<const float> inputs) { inputs_ = inputs; }
  // A buffer as the last Run has left it, [tokens][width].
  const std::vector<std::vector<double>>& BufferRows(BufferId id) const { return buffers_[id]; }
  // That all tokens have; it outlives the model.
  void SetAdapter(const Adapter& adapter) { adapter_ = &adapter; }

  // Logits of every token of a sequence, [tokens][vocabulary].
  std::vector<std::vector<double>> Run(std::span<const int32_t> tokens);

 private:
  using Rows = std::vector<std::vector<double>>;

  void Apply(const EmbedOp& op);
  void Apply(const NormOp& op);
  void Apply(const LinearOp& op);
  void Apply(const SliceGateOp& op);
  void Apply(const HeadSquaresOp& op);
  void Apply(const RopeAppendOp& op);
  void Apply(const AttentionOp& op);
  void Apply(const GatherRowsOp& op);
  void Apply(const LogitsOp& op);
  void Apply(const SampleOp&) {}
  void Apply(const AllReduceOp&) {}
  void Apply(const MoeOp& op);
  void Apply(const LatentAppendOp& op);
  void Apply(const HeadLinearOp& op);
  void Apply(const LatentAttentionOp& op);
  void Apply(const CausalConvOp& op);
  void Apply(const RecurrenceOp& op);
  void Apply(const GatedNormOp& op);
  void Apply(const GateOp& op);
  void Apply(const LoraOp& op);
  void Apply(const ActivateOp& op);
  void Apply(const CopyOp& op);
  void Apply(const InputOp& op);

  void NormHead(const RopeAppendOp& op, int head, size_t token, std::vector<double>& x) const;
  const std::vector<double>& Vector(WeightId id) const { return weights_[id][0]; }
  std::vector<double> Product(WeightId weight, WeightId bias, const std::vector<double>& x) const;

  const StepProgram& program_;
  const KvType kv_;
  bool quantise_inputs_ = false;
  const Adapter* adapter_ = nullptr;
  std::span<const float> inputs_;
  std::vector<Rows> weights_;  // by weight, vectors flattened to one row
  std::vector<Rows> buffers_;
  std::vector<Rows> keys_and_values_;  // by layer and token: all heads' keys, then their values
  std::map<int, Rows> latents_;        // by layer, as pages hold them
  std::vector<int32_t> tokens_;
};

}  // namespace quire::kernels::test
