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

}  // namespace

TinyProgram::TinyProgram(uint64_t seed, int rank, int ranks, int experts)
    : state_(seed + static_cast<uint64_t>(rank)), experts_(experts) {
  program.family = "tiny";
  program.rank = rank;
  program.ranks = ranks;
  program.vocab_size = kVocab;
  program.hidden_size = kHidden;
  program.max_positions = 4096;
  program.heads = kHeads / ranks;
  program.kv_heads = kKvHeads / ranks;
  program.head_dim = kHeadDim;
  kernels::Rope rope;
  rope.rotary_dim = kHeadDim;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    rope.inverse_frequency.push_back(std::pow(10000.0, -2.0 * i / kHeadDim));
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
  for (int layer = 0; layer < 4; ++layer) AddLayer(layer, kWindows[layer], hidden);

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

void TinyProgram::AddLayer(int layer, int window, kernels::BufferId hidden) {
  program.layer_windows.push_back(window);
  const auto norm = [&] {
    kernels::NormOp op;
    op.weight = AddWeight(1, kHidden, 0.1f, 1.0f);
    op.in = hidden;
    op.out = AddBuffer(kHidden);
    program.ops.push_back(op);
    return op.out;
  };
  const auto linear = [&](kernels::BufferId in, int64_t rows, int64_t cols, kernels::BufferId out) {
    kernels::LinearOp op;
    op.weight = AddWeight(rows, cols, 2.0f / std::sqrt(static_cast<float>(cols)), 0.0f);
    op.accumulate = out == hidden && program.rank == 0;
    op.in = in;
    op.out = out;
    return op;
  };
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
  if (experts_ > 0) attention.sinks = AddWeight(1, program.heads, 1.0f, 0.0f);

  const kernels::BufferId normed = norm();
  const int qkv_width = (program.heads + 2 * program.kv_heads) * kHeadDim;
  const int attended = program.heads * kHeadDim;
  const int middle_width = kMiddle / program.ranks;
  append.qkv = AddBuffer(qkv_width);
  program.ops.push_back(linear(normed, qkv_width, kHidden, append.qkv));
  program.ops.push_back(append);
  attention.qkv = append.qkv;
  attention.out = AddBuffer(attended);
  program.ops.push_back(attention);
  program.ops.push_back(linear(attention.out, kHidden, attended, hidden));
  AddSum(hidden);

  const kernels::BufferId again = norm();
  if (experts_ > 0) return AddExperts(again, hidden);
  const kernels::BufferId middle = AddBuffer(middle_width);
  kernels::LinearOp gate = linear(again, 2 * middle_width, kHidden, middle);
  gate.activation = kernels::LinearOp::Activation::kSiluGated;
  program.ops.push_back(gate);
  program.ops.push_back(linear(middle, kHidden, middle_width, hidden));
  AddSum(hidden);
}

void TinyProgram::AddExperts(kernels::BufferId in, kernels::BufferId hidden) {
  const int middle = kMiddle / program.ranks;
  const auto size = [](int64_t cols) { return 2.0f / std::sqrt(static_cast<float>(cols)); };
  kernels::MoeOp moe;
  moe.router = AddWeight(experts_, kHidden, size(kHidden), 0.0f);
  std::vector<float>& rows = memory_.back();
  for (int expert = 1; expert < experts_; expert += 2) {
    std::copy_n(rows.begin() + (expert - 1) * kHidden, kHidden, rows.begin() + expert * kHidden);
  }
  moe.rule.chosen = 2;
  for (int expert = 0; expert < experts_; ++expert) {
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
