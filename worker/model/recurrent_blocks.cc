#include "worker/model/recurrent_blocks.h"

namespace quire::model {

using kernels::BufferId;
using kernels::WeightId;
using Kind = load::RecurrentConfig::Kind;
using Stack = ProgramBuilder::Stack;

namespace {

Range Scaled(const Range& heads, int64_t width) {
  return {heads.begin * width, heads.count * width};
}

// Channels of this rank in the convolution of q, k and v, or of Mamba-2's x, B and C.
std::vector<Range> MixedChannels(const ProgramBuilder& builder) {
  const load::RecurrentConfig& config = builder.config().recurrent;
  const int64_t keys = int64_t{config.key_heads} * config.key_dim;
  const int64_t all_values = int64_t{config.value_heads} * config.value_dim;
  const Range own = Scaled(builder.shard().key_heads, config.key_dim);
  const Range values = Scaled(builder.shard().value_heads, config.value_dim);
  if (config.kind == Kind::kMamba2) {
    const int64_t b = all_values + own.begin;
    return {values, {b, own.count}, {b + keys, own.count}};
  }
  return {own, {keys + own.begin, own.count}, {2 * keys + values.begin, values.count}};
}

int64_t AllChannels(const load::RecurrentConfig& config) {
  return 2 * int64_t{config.key_heads} * config.key_dim +
         int64_t{config.value_heads} * config.value_dim;
}

// The rows of each kind (q, k, v, z, or b, a) in a tensor that has all of them by key head.
class Packed {
 public:
  Packed(Part part, const Range& heads, int64_t all_heads, std::initializer_list<int64_t> widths)
      : part_(part), heads_(heads), all_heads_(all_heads), widths_(widths) {
    for (const int64_t width : widths_) of_head_ += width;
  }

  void Append(size_t kind, std::vector<Stack>& runs) const {
    int64_t before = 0;
    for (size_t i = 0; i < kind; ++i) before += widths_[i];
    for (int64_t head = heads_.begin; head < heads_.begin + heads_.count; ++head) {
      runs.push_back({part_, all_heads_ * of_head_, {head * of_head_ + before, widths_[kind]}});
    }
  }

 private:
  Part part_;
  Range heads_;
  int64_t all_heads_;
  std::vector<int64_t> widths_;
  int64_t of_head_ = 0;
};

void AddProduct(ProgramBuilder& builder, WeightId weight, BufferId in, BufferId out) {
  kernels::LinearOp op;
  op.weight = weight;
  op.in = in;
  op.out = out;
  builder.Add(op);
}

// q, k and v; z; and b with a.
void AddDeltaInputs(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
                    BufferId normed) {
  const load::RecurrentConfig& config = builder.config().recurrent;
  const Shard& shard = builder.shard();
  const int64_t values = int64_t{config.value_heads} * config.value_dim;
  const int64_t of_key = config.value_heads / config.key_heads;
  std::vector<Stack> qkv, z, gates;
  if (config.packed) {
    const int64_t value = of_key * config.value_dim;
    const Packed all(Part::kRecurrentPacked, shard.key_heads, config.key_heads,
                     {config.key_dim, config.key_dim, value, value});
    for (size_t kind = 0; kind < 3; ++kind) all.Append(kind, qkv);
    all.Append(3, z);
  } else {
    for (const Range& range : MixedChannels(builder)) {
      qkv.push_back({Part::kRecurrentIn, AllChannels(config), range});
    }
    z.push_back({Part::kRecurrentZ, values, Scaled(shard.value_heads, config.value_dim)});
  }
  if (config.packed_gates) {
    const Packed pairs(Part::kRecurrentB, shard.key_heads, config.key_heads, {of_key, of_key});
    for (size_t kind = 0; kind < 2; ++kind) pairs.Append(kind, gates);
  } else {
    for (const Part part : {Part::kRecurrentB, Part::kRecurrentA}) {
      gates.push_back({part, config.value_heads, shard.value_heads});
    }
  }
  const int64_t width = builder.config().hidden_size;
  AddProduct(builder, builder.Runs(qkv, width, layer), normed, buffers.in);
  AddProduct(builder, builder.Runs(z, width, layer), normed, buffers.z);
  AddProduct(builder, builder.Runs(gates, width, layer), normed, buffers.gates);
}

// Of one tensor: z; x, B and C; dt.
void AddMambaInputs(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
                    BufferId normed) {
  const load::RecurrentConfig& config = builder.config().recurrent;
  const Shard& shard = builder.shard();
  const int64_t values = int64_t{config.value_heads} * config.value_dim;
  const int64_t mixed = AllChannels(config);
  const int64_t rows = values + mixed + config.value_heads;
  const auto run = [rows](int64_t before, const Range& range) {
    return Stack{Part::kRecurrentIn, rows, {before + range.begin, range.count}};
  };
  std::vector<Stack> xbc;
  for (const Range& range : MixedChannels(builder)) xbc.push_back(run(values, range));
  const int64_t width = builder.config().hidden_size;
  AddProduct(builder, builder.Runs(xbc, width, layer), normed, buffers.in);
  const Stack z = run(0, Scaled(shard.value_heads, config.value_dim));
  AddProduct(builder, builder.Runs({z}, width, layer), normed, buffers.z);
  const Stack steps = run(values + mixed, shard.value_heads);
  AddProduct(builder, builder.Runs({steps}, width, layer), normed, buffers.gates);
}

// The gated delta rule, or Mamba-2.
void AddHeads(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
              BufferId normed) {
  const load::RecurrentConfig& config = builder.config().recurrent;
  const Shard& shard = builder.shard();
  const bool mamba = config.kind == Kind::kMamba2;
  (mamba ? AddMambaInputs : AddDeltaInputs)(builder, buffers, layer, normed);
  const std::vector<Range> channels = MixedChannels(builder);
  int64_t count = 0;
  for (const Range& range : channels) count += range.count;
  kernels::CausalConvOp conv;
  conv.layer = builder.AddState({static_cast<int>(count), config.taps,
                                 static_cast<int>(shard.value_heads.count), config.key_dim,
                                 config.value_dim});
  conv.weight = builder.Convolution(channels, AllChannels(config), layer);
  if (config.biases) {
    const int64_t all = AllChannels(config);
    conv.bias = builder.Vector({{Part::kConvolution, all, channels[0]},
                                {Part::kConvolution, all, channels[1]},
                                {Part::kConvolution, all, channels[2]}},
                               "bias", layer);
  }
  conv.silu = true;
  conv.in = buffers.in;
  conv.out = buffers.convolved;
  builder.Add(conv);

  kernels::RecurrenceOp recurrence;
  if (mamba) recurrence.kind = kernels::RecurrenceOp::Kind::kMamba2;
  recurrence.layer = conv.layer;
  recurrence.key_heads = static_cast<int>(shard.key_heads.count);
  recurrence.value_heads = static_cast<int>(shard.value_heads.count);
  recurrence.key_dim = config.key_dim;
  recurrence.value_dim = config.value_dim;
  recurrence.tiled = config.tiled;
  recurrence.decay = builder.Decay(config.value_heads, shard.value_heads, layer);
  recurrence.bias = builder.Vector({{Part::kStepBias, config.value_heads, shard.value_heads}},
                                   builder.is_gguf() ? "bias" : "weight", layer);
  if (mamba) {
    recurrence.skip =
        builder.Vector({{Part::kSkip, config.value_heads, shard.value_heads}}, "weight", layer);
  }
  recurrence.in = conv.out;
  recurrence.gates = buffers.gates;
  recurrence.factors = buffers.factors;
  recurrence.out = buffers.recurred;
  builder.Add(recurrence);

  kernels::GatedNormOp norm;
  const int64_t values = int64_t{config.value_heads} * config.value_dim;
  norm.weight = mamba
                    ? builder.Vector(
                          {{Part::kGatedNorm, values, Scaled(shard.value_heads, config.value_dim)}},
                          "weight", layer)
                    : builder.Vector({{Part::kGatedNorm, config.value_dim}}, "weight", layer);
  norm.group = mamba ? static_cast<int>(values / config.key_heads) : config.value_dim;
  norm.gate_first = mamba;
  norm.epsilon = static_cast<float>(builder.config().norm_epsilon);
  norm.in = buffers.recurred;
  norm.gate = buffers.z;
  norm.out = buffers.recurred;
  builder.Add(norm);
}

void AddShortConvolution(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
                         BufferId normed) {
  const load::ModelConfig& config = builder.config();
  const Range& own = builder.shard().channels;
  const int64_t width = config.hidden_size;
  std::vector<Stack> inputs;
  for (int64_t part = 0; part < 3; ++part) {
    inputs.push_back({Part::kRecurrentIn, 3 * width, {part * width + own.begin, own.count}});
  }
  kernels::LinearOp project;
  project.weight = builder.Runs(inputs, width, layer);
  if (config.recurrent.biases) {
    project.bias = builder.Vector({inputs[0], inputs[1], inputs[2]}, "bias", layer);
  }
  project.in = normed;
  project.out = buffers.in;
  builder.Add(project);

  kernels::CausalConvOp conv;
  conv.layer =
      builder.AddState({.channels = static_cast<int>(own.count), .taps = config.recurrent.taps});
  conv.weight = builder.Convolution({own}, width, layer);
  if (config.recurrent.biases) {
    conv.bias = builder.Vector({{Part::kConvolution, width, own}}, "bias", layer);
  }
  conv.gated = true;
  conv.in = buffers.in;
  conv.out = buffers.recurred;
  builder.Add(conv);
}

}  // namespace

RecurrentBuffers MakeRecurrentBuffers(ProgramBuilder& builder) {
  const load::RecurrentConfig& config = builder.config().recurrent;
  const Shard& shard = builder.shard();
  RecurrentBuffers buffers;
  if (config.kind == Kind::kShortConvolution) {
    buffers.in = builder.Buffer("bcx", 3 * shard.channels.count);
    buffers.recurred = builder.Buffer("recurred", shard.channels.count);
  } else if (config.Exists()) {
    const bool delta = config.kind == Kind::kGatedDelta;
    const int64_t values = shard.value_heads.count * config.value_dim;
    const int64_t mixed = 2 * shard.key_heads.count * config.key_dim + values;
    buffers.in = builder.Buffer("mixed", mixed);
    buffers.convolved = builder.Buffer("convolved", mixed);
    buffers.z = builder.Buffer("z", values);
    buffers.gates = builder.Buffer("gates", (delta ? 2 : 1) * shard.value_heads.count);
    buffers.factors = builder.Buffer("factors", 2 * shard.value_heads.count);
    buffers.recurred = builder.Buffer("recurred", values);
  }
  return buffers;
}

void AddRecurrent(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
                  BufferId normed, BufferId out) {
  const load::ModelConfig& config = builder.config();
  const load::RecurrentConfig& recurrent = config.recurrent;
  const bool heads = recurrent.kind != Kind::kShortConvolution;
  (heads ? AddHeads : AddShortConvolution)(builder, buffers, layer, normed);
  const int64_t width =
      heads ? int64_t{recurrent.value_heads} * recurrent.value_dim : config.hidden_size;
  const Range own =
      heads ? Scaled(builder.shard().value_heads, recurrent.value_dim) : builder.shard().channels;
  kernels::LinearOp output;
  output.weight = builder.Matrix({{Part::kRecurrentOut, config.hidden_size}}, width, layer, own);
  output.scale = static_cast<float>(config.residual_scale);
  output.accumulate = true;
  output.in = buffers.recurred;
  output.out = out;
  builder.AddPartialLinear(
      output, {.part = Part::kRecurrentOut, .layer = layer, .there = !heads && recurrent.biases});
}

namespace {

// Of each query head of this rank, `half` 0 is q and 1 the gate.
std::vector<Stack> HalvesOfQuery(const ProgramBuilder& builder, int64_t half) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  const int64_t dim = config.head_dim;
  std::vector<Stack> runs;
  for (int head = 0; head < shard.heads; ++head) {
    const int64_t at = int64_t{shard.rank} * shard.heads + head;
    runs.push_back({Part::kQuery, 2 * dim * config.heads, {(2 * at + half) * dim, dim}});
  }
  return runs;
}

}  // namespace

std::vector<Stack> QueryRuns(const ProgramBuilder& builder) { return HalvesOfQuery(builder, 0); }

void AddAttentionGate(ProgramBuilder& builder, int layer, BufferId normed, BufferId gate) {
  AddProduct(builder, builder.Runs(HalvesOfQuery(builder, 1), builder.config().hidden_size, layer),
             normed, gate);
}

}  // namespace quire::model
