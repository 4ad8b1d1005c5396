// The launches of recurrent layers and of gated attention.
#include <bit>

#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/recurrent/causal_conv.h"
#include "kernels/cuda/ops/recurrent/gated_norm.h"
#include "kernels/cuda/ops/recurrent/recurrence.h"
#include "kernels/cuda/ops/recurrent/sigmoid_gate.h"

namespace quire::kernels::cuda {
namespace {

// What these launches find of their program and step.
struct Surroundings {
  runtime::Runtime& runtime;
  runtime::StreamId stream;
  const DeviceProgram& lowered;
  const DeviceWeights& weights;
  const std::vector<std::byte*>& buffers;
  const StateLayout& states;
  StateRuns runs;
  StatePages pages;  // without the part
  int tokens = 0;

  float* Floats(BufferId id) const { return reinterpret_cast<float*>(buffers[id]); }
  uint16_t* Narrow(BufferId id) const { return reinterpret_cast<uint16_t*>(buffers[id]); }
  int Width(BufferId id) const { return lowered.buffers[id].width; }
  const float* Vector(WeightId id) const { return weights.At(id).floats(); }
  StatePages PagesOf(const StatePart& part) const {
    StatePages of = pages;
    of.part = part;
    return of;
  }
};

runtime::Error LaunchOp(const CausalConvOp& op, const Surroundings& at) {
  CausalConvParams params;
  params.in = at.Floats(op.in);
  params.in_stride = at.Width(op.in);
  params.channels = at.Width(op.out);
  const StateLayout::Layer& layer = at.states.layers[static_cast<size_t>(op.layer)];
  params.taps = 1 + static_cast<int>(layer.inputs.unit_bytes / (kStateChannels * 4));
  params.weight = at.Vector(op.weight);
  params.bias = at.Vector(op.bias);
  params.silu = op.silu;
  params.gated = op.gated;
  if (at.lowered.buffers[op.out].is_float32) {
    params.out = at.Floats(op.out);
  } else {
    params.narrow = at.Narrow(op.out);
  }
  params.out_stride = at.Width(op.out);
  params.runs = at.runs;
  params.pages = at.PagesOf(layer.inputs);
  return LaunchCausalConv(at.runtime, at.stream, params);
}

runtime::Error LaunchOp(const RecurrenceOp& op, const Surroundings& at) {
  RecurrenceParams params;
  params.kind = op.kind;
  params.tiled = op.tiled;
  params.key_heads = op.key_heads;
  params.value_heads = op.value_heads;
  params.key_dim = op.key_dim;
  params.value_dim = op.value_dim;
  params.decay = at.Vector(op.decay);
  params.bias = at.Vector(op.bias);
  params.skip = at.Vector(op.skip);
  params.in = at.Floats(op.in);
  params.in_stride = at.Width(op.in);
  params.gates = at.Floats(op.gates);
  params.gates_stride = at.Width(op.gates);
  params.out = at.Floats(op.out);
  params.out_stride = at.Width(op.out);
  params.runs = at.runs;
  params.pages = at.PagesOf(at.states.layers[static_cast<size_t>(op.layer)].matrices);
  return LaunchRecurrence(at.runtime, at.stream, params);
}

runtime::Error LaunchOp(const GatedNormOp& op, const Surroundings& at) {
  GatedNormParams params;
  params.in = at.Floats(op.in);
  params.gate = at.Floats(op.gate);
  params.weight = at.Vector(op.weight);
  params.out = at.Narrow(op.out);
  params.rows = at.tokens;
  params.width = at.Width(op.in);
  params.group = op.group;
  params.weight_per_group = at.weights.At(op.weight).cols >= op.group + 8;  // it has whole eights
  params.gate_first = op.gate_first;
  params.epsilon = op.epsilon;
  return LaunchGatedNorm(at.runtime, at.stream, params);
}

runtime::Error LaunchOp(const GateOp& op, const Surroundings& at) {
  SigmoidGateParams params;
  params.in = at.Narrow(op.in);
  params.gate = at.Floats(op.gate);
  params.out = at.Narrow(op.out);
  params.count = int64_t{at.tokens} * at.Width(op.out);
  return LaunchSigmoidGate(at.runtime, at.stream, params);
}

}  // namespace

void CudaProgram::Do(const RecurrentStep& step) {
  Surroundings at{runtime_,   stream_, lowered_, weights_,          buffers_,
                  kv_.states, {},      {},       step_.shape.tokens};
  at.runs.sequences = Input<AttentionSequence>(step_.places.sequences);
  at.runs.runs = Input<StateRun>(step_.places.state_runs);
  at.runs.rows = step_.shape.state_rows;
  at.runs.count = step_.shape.state_runs;
  at.pages.pool = reinterpret_cast<unsigned char*>(pool_.begin());
  at.pages.page_bytes = kv_.page_bytes;
  at.pages.block_shift = std::countr_zero(static_cast<uint32_t>(kv_.block_size));
  at.pages.group_stride = int64_t{rules_.slots} * rules_.blocks;
  at.pages.tables = tables_ + kv_.states.first_group * at.pages.group_stride;
  at.pages.slot_stride = rules_.blocks;
  std::visit([&](const auto& op) { Check(LaunchOp(op, at)); }, step);
}

}  // namespace quire::kernels::cuda
