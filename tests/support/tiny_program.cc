#include "tests/support/tiny_program.h"

#include <algorithm>
#include <cmath>

namespace quire::test {
namespace {

constexpr int kHidden = 32;
constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kHeadDim = 16;
constexpr int kMiddle = 64;
constexpr int kVocab = 97;
constexpr int kTaps = 3;
// Of latents: what does not turn of a head, what does, a latent's first part, a head's result.
constexpr int kStill = 16;
constexpr int kTurns = 8;
constexpr int kRank = 24;
constexpr int kValue = 12;

}  // namespace

TinyProgram::TinyProgram(uint64_t seed, int rank, int ranks, const TinyShape& shape)
    : shape_(shape), state_(seed + static_cast<uint64_t>(rank)) {
  const bool latents = shape_.latents;
  program.family = "tiny";
  program.rank = rank;
  program.ranks = ranks;
  program.vocab_size = kVocab;
  program.hidden_size = kHidden;
  program.max_positions = 4096;
  program.heads = kHeads / ranks;
  program.kv_heads = latents ? 1 : kKvHeads / ranks;
  program.head_dim = latents ? kRank + kTurns : kHeadDim;
  program.latents = latents;
  kernels::Rope rope;
  rope.rotary_dim = latents ? kTurns : kHeadDim;
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    rope.inverse_frequency.push_back(std::pow(10000.0, -2.0 * i / rope.rotary_dim));
  }
  program.ropes.push_back(rope);

  const kernels::VocabularySlice vocabulary = kernels::VocabularyOf(program);
  const kernels::WeightId table = AddWeight(vocabulary.count, kHidden, 1.0f, 0.0f);
  const kernels::BufferId hidden = AddBuffer(kHidden);
  kernels::EmbedOp embed;
  embed.table = table;
  embed.out = hidden;
  program.ops.push_back(embed);
  AddSum(hidden);
  const int kWindows[] = {0, 24, 24, 0};
  for (int layer = 0; layer < 4; ++layer) AddLayer(layer, latents ? 0 : kWindows[layer], hidden);

  kernels::NormOp norm;
  norm.weight = AddWeight(1, kHidden, 0.1f, 1.0f);
  norm.in = hidden;
  norm.out = AddBuffer(kHidden);
  program.ops.push_back(norm);
  kernels::GatherRowsOp gather;
  gather.in = norm.out;
  gather.out = AddBuffer(kHidden, true);
  program.ops.push_back(gather);
  kernels::LogitsOp logits;
  logits.head = table;
  logits.in = gather.out;
  logits.out = AddBuffer(vocabulary.width, true);
  program.ops.push_back(logits);
  program.ops.push_back(kernels::SampleOp{logits.out});
}

kernels::WeightId TinyProgram::AddWeight(int64_t rows, int64_t cols, float scale, float offset) {
  std::vector<float>& values = memory_.emplace_back(static_cast<size_t>(rows * cols));
  for (float& value : values) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    const double unit = static_cast<double>(state_ >> 40) / (1 << 24) * 2 - 1;
    value = static_cast<float>(unit) * scale + offset;
  }
  kernels::Weight weight;
  weight.name = "tiny." + std::to_string(program.weights.size());
  weight.rows = rows;
  weight.cols = cols;
  weight.parts.push_back(
      {kernels::DType::kF32, rows, cols, reinterpret_cast<const std::byte*>(values.data())});
  program.weights.push_back(std::move(weight));
  return static_cast<kernels::WeightId>(program.weights.size()) - 1;
}

kernels::BufferId TinyProgram::AddBuffer(int width, bool sampled_rows_only) {
  program.buffers.push_back(
      {"b" + std::to_string(program.buffers.size()), width, sampled_rows_only});
  return static_cast<kernels::BufferId>(program.buffers.size()) - 1;
}

void TinyProgram::AddSum(kernels::BufferId buffer) {
  if (program.ranks > 1) program.ops.push_back(kernels::AllReduceOp{buffer});
}

kernels::BufferId TinyProgram::AddNorm(kernels::BufferId hidden) {
  kernels::NormOp op;
  op.weight = AddWeight(1, kHidden, 0.1f, 1.0f);
  op.in = hidden;
  op.out = AddBuffer(kHidden);
  program.ops.push_back(op);
  return op.out;
}

void TinyProgram::AddLinear(kernels::BufferId in, kernels::BufferId out, bool to_hidden,
                            kernels::LinearOp::Activation activation) {
  const int64_t cols = program.buffers[static_cast<size_t>(in)].width;
  const int64_t width = program.buffers[static_cast<size_t>(out)].width;
  const int64_t rows = kernels::LinearOp::IsGated(activation) ? 2 * width : width;
  kernels::LinearOp op;
  op.weight = AddWeight(rows, cols, 2.0f / std::sqrt(static_cast<float>(cols)), 0.0f);
  op.activation = activation;
  op.accumulate = to_hidden && program.rank == 0;
  op.in = in;
  op.out = out;
  program.ops.push_back(op);
}

void TinyProgram::AddAttention(int layer, int window, kernels::BufferId hidden) {
  kernels::RopeAppendOp append;
  append.layer = layer;
  append.heads = program.heads;
  append.kv_heads = program.kv_heads;
  append.head_dim = kHeadDim;
  append.rope = 0;
  kernels::AttentionOp attention;
  attention.layer = layer;
  attention.heads = program.heads;
  attention.kv_heads = program.kv_heads;
  attention.head_dim = kHeadDim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  attention.window = window;
  if (shape_.experts > 0) attention.sinks = AddWeight(1, program.heads, 1.0f, 0.0f);

  const kernels::BufferId normed = AddNorm(hidden);
  const int attended = program.heads * kHeadDim;
  append.qkv = AddBuffer((program.heads + 2 * program.kv_heads) * kHeadDim);
  attention.qkv = append.qkv;
  AddLinear(normed, append.qkv);
  program.ops.push_back(append);
  attention.out = AddBuffer(attended);
  program.ops.push_back(attention);
  if (shape_.hybrid) {
    const kernels::BufferId gate = AddBuffer(attended);
    AddLinear(normed, gate);
    program.ops.push_back(kernels::GateOp{attention.out, gate, attention.out});
  }
  AddLinear(attention.out, hidden, true);
}

void TinyProgram::AddLatents(int layer, kernels::BufferId hidden) {
  const kernels::BufferId normed = AddNorm(hidden);
  const int heads = program.heads;
  const auto of_heads = [&](kernels::BufferId in, int rows, int cols, int out_dim) {
    kernels::HeadLinearOp op;
    for (int head = 0; head < heads; ++head) {
      op.weights.push_back(AddWeight(rows, cols, 2.0f / std::sqrt(static_cast<float>(cols)), 0.0f));
    }
    op.in = in;
    op.out = AddBuffer(heads * out_dim);
    program.ops.push_back(op);
    return op.out;
  };
  kernels::LatentAppendOp append;
  append.layer = layer;
  append.heads = heads;
  append.query_dim = kStill + kTurns;
  append.rank = kRank;
  append.rope_dim = kTurns;
  append.norm = AddWeight(1, kRank, 0.1f, 1.0f);
  append.rope = 0;
  append.pairs = true;
  append.queries = AddBuffer(heads * append.query_dim);
  append.latents = AddBuffer(kRank + kTurns);
  AddLinear(normed, append.queries);
  AddLinear(normed, append.latents);
  program.ops.push_back(append);
  kernels::LatentAttentionOp attention;
  attention.queries = of_heads(append.queries, kRank, kStill, kRank + kTurns);
  attention.out = AddBuffer(heads * kRank);
  attention.layer = layer;
  attention.heads = heads;
  attention.rank = kRank;
  attention.rope_dim = kTurns;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(append.query_dim));
  program.ops.push_back(attention);
  AddLinear(of_heads(attention.out, kValue, kRank, kValue), hidden, true);
}

void TinyProgram::AddDelta(kernels::BufferId hidden) {
  kernels::RecurrenceOp op;
  op.key_heads = 2 / program.ranks;
  op.value_heads = 4 / program.ranks;
  op.key_dim = kHeadDim;
  op.value_dim = kHeadDim;
  const int values = op.value_heads * op.value_dim;
  const int channels = 2 * op.key_heads * op.key_dim + values;
  op.layer = static_cast<int>(program.states.size());
  program.states.push_back({channels, kTaps, op.value_heads, op.key_dim, op.value_dim});
  const kernels::BufferId normed = AddNorm(hidden);
  kernels::CausalConvOp conv;
  conv.layer = op.layer;
  conv.weight = AddWeight(1, int64_t{kTaps} * channels, 0.5f, 0.2f);
  conv.silu = true;
  conv.in = AddBuffer(channels);
  conv.out = op.in = AddBuffer(channels);
  AddLinear(normed, conv.in);
  program.ops.push_back(conv);
  op.decay = AddWeight(1, op.value_heads, 0.1f, -0.2f);
  op.bias = AddWeight(1, op.value_heads, 0.2f, 0.1f);
  op.gates = AddBuffer(2 * op.value_heads);
  AddLinear(normed, op.gates);
  op.factors = AddBuffer(2 * op.value_heads);
  op.out = AddBuffer(values);
  program.ops.push_back(op);
  kernels::GatedNormOp norm;
  norm.weight = AddWeight(1, op.value_dim, 0.1f, 1.0f);
  norm.group = op.value_dim;
  norm.in = norm.out = op.out;
  norm.gate = AddBuffer(values);
  AddLinear(normed, norm.gate);
  program.ops.push_back(norm);
  AddLinear(op.out, hidden, true);
}

void TinyProgram::AddConvolution(kernels::BufferId hidden) {
  const int channels = kMiddle / program.ranks;
  kernels::CausalConvOp op;
  op.layer = static_cast<int>(program.states.size());
  program.states.push_back({.channels = channels, .taps = kTaps});
  op.weight = AddWeight(1, int64_t{kTaps} * channels, 0.5f, 0.2f);
  op.gated = true;
  op.in = AddBuffer(3 * channels);
  op.out = AddBuffer(channels);
  AddLinear(AddNorm(hidden), op.in);
  program.ops.push_back(op);
  AddLinear(op.out, hidden, true);
}

void TinyProgram::AddLayer(int layer, int window, kernels::BufferId hidden) {
  using Activation = kernels::LinearOp::Activation;
  const bool recurs = shape_.hybrid && window > 0;
  program.layer_windows.push_back(recurs ? kernels::kNoKeys : window);
  if (shape_.latents) {
    AddLatents(layer, hidden);
  } else if (!recurs) {
    AddAttention(layer, window, hidden);
  } else if (program.states.empty()) {
    AddDelta(hidden);
  } else {
    AddConvolution(hidden);
  }
  AddSum(hidden);
  const kernels::BufferId normed = AddNorm(hidden);
  if (shape_.experts > 0) return AddExperts(normed, hidden);
  const kernels::BufferId middle = AddBuffer(kMiddle / program.ranks);
  AddLinear(normed, middle, false, recurs ? Activation::kReluSquared : Activation::kSiluGated);
  AddLinear(middle, hidden, true);
  AddSum(hidden);
}

void TinyProgram::AddExperts(kernels::BufferId in, kernels::BufferId hidden) {
  const int middle = kMiddle / program.ranks;
  const auto size = [](int64_t cols) { return 2.0f / std::sqrt(static_cast<float>(cols)); };
  kernels::MoeOp moe;
  moe.router = AddWeight(shape_.experts, kHidden, size(kHidden), 0.0f);
  std::vector<float>& rows = memory_.back();
  for (int expert = 1; expert < shape_.experts; expert += 2) {
    std::copy_n(rows.begin() + (expert - 1) * kHidden, kHidden, rows.begin() + expert * kHidden);
  }
  moe.rule.chosen = 2;
  for (int expert = 0; expert < shape_.experts; ++expert) {
    kernels::MoeOp::Expert& one = moe.experts.emplace_back();
    one.gate_up = AddWeight(2 * middle, kHidden, size(kHidden), 0.0f);
    one.down = AddWeight(kHidden, middle, size(middle), 0.0f);
    one.gate_up_bias = AddWeight(1, 2 * middle, 0.1f, 0.0f);
    if (program.rank == 0) one.down_bias = AddWeight(1, kHidden, 0.1f, 0.0f);
  }
  moe.activation = kernels::LinearOp::Activation::kClampedGated;
  moe.accumulate = program.rank == 0;
  moe.in = in;
  moe.out = hidden;
  program.ops.emplace_back(moe);
  AddSum(hidden);
}

}  // namespace quire::test
