#include "tests/kernels/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/cpu/cpu_program.h"

namespace quire::kernels::test {
namespace {

// Appends buffers, weights and ops to a program.
struct Builder {
  StepProgram& program;
  WeightStore& store;
  const ModelShape& shape;

  BufferId AddBuffer(const std::string& name, int width, bool sampled = false) {
    program.buffers.push_back({name, width, sampled});
    return static_cast<int>(program.buffers.size()) - 1;
  }
  WeightId Add(Weight weight) {
    program.weights.push_back(std::move(weight));
    return static_cast<int>(program.weights.size()) - 1;
  }
  WeightId Matrix(std::vector<std::pair<DType, int64_t>> parts, int64_t cols) {
    Weight weight;
    weight.name = "matrix";
    weight.cols = cols;
    const float size = 1.0f / std::sqrt(static_cast<float>(cols));
    for (const auto& [type, rows] : parts) {
      weight.parts.push_back(store.Random(type, rows, cols, size));
      weight.rows += rows;
    }
    return Add(weight);
  }
  WeightId Vector(int64_t cols, float centre) {
    return Add(store.RandomVector(cols, centre, 0.1f));
  }
  WeightId Bias(int64_t cols) { return shape.layer_norm ? Vector(cols, 0.0f) : kNoId; }

  NormOp Norm(BufferId in, BufferId out) {
    NormOp op;
    op.kind = shape.layer_norm ? NormOp::Kind::kLayer : NormOp::Kind::kRms;
    op.weight = Vector(shape.hidden, 1.0f);
    op.bias = Bias(shape.hidden);
    op.epsilon = 1e-5f;
    op.in = in;
    op.out = out;
    return op;
  }

  MoeOp Experts(BufferId in, BufferId out);
  void Append(int layer, BufferId qkv);
  void Layer(int layer, BufferId x, BufferId h, BufferId qkv, BufferId attended, BufferId inner);
};

MoeOp Builder::Experts(BufferId in, BufferId out) {
  MoeOp op;
  Weight router;
  router.name = "router";
  router.rows = shape.experts;
  router.cols = shape.hidden;
  // Loud, so that choices are seldom close.
  router.parts = {store.Random(DType::kF32, shape.experts, shape.hidden,
                               4.0f / std::sqrt(static_cast<float>(shape.hidden)))};
  op.router = Add(router);
  if (shape.expert_biases) op.router_bias = Vector(shape.experts, 0.0f);
  if (shape.selection_bias) op.selection_bias = Vector(shape.experts, 0.0f);
  op.rule = shape.rule;
  for (int e = 0; e < shape.experts; ++e) {
    op.experts.push_back(
        {shape.plain_experts
             ? Matrix({{shape.type, shape.inner}}, shape.hidden)
             : Matrix({{shape.type, shape.inner}, {shape.second_type, shape.inner}}, shape.hidden),
         Matrix({{shape.second_type, shape.hidden}}, shape.inner)});
    if (!shape.expert_biases) continue;
    op.experts.back().gate_up_bias = Vector(2 * shape.inner, 0.0f);
    op.experts.back().down_bias = Vector(shape.hidden, 0.0f);
  }
  if (shape.expert_biases) op.activation = LinearOp::Activation::kClampedGated;
  if (shape.plain_experts) op.activation = LinearOp::Activation::kReluSquared;
  op.accumulate = true;
  op.in = in;
  op.out = out;
  return op;
}

void Builder::Append(int layer, BufferId qkv) {
  const int q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  RopeAppendOp rope;
  rope.qkv = qkv;
  rope.layer = layer;
  rope.heads = shape.heads;
  rope.kv_heads = shape.kv_heads;
  rope.head_dim = shape.head_dim;
  if (shape.head_norm) {
    const bool shared = shape.norm_of_heads == HeadNorm::kRms;
    rope.norm = shape.norm_of_heads;
    rope.q_norm = Vector(shared ? shape.head_dim : q_width, 0.0f);
    rope.k_norm = Vector(shared ? shape.head_dim : kv_width, 0.0f);
    rope.norm_weight_offset = 1.0f;
  }
  if (rope.norm == HeadNorm::kWhole) {
    rope.squares = AddBuffer("squares", 2);
    rope.norm_heads = shape.heads;
    rope.norm_kv_heads = shape.kv_heads;
    program.ops.push_back(
        HeadSquaresOp{qkv, rope.squares, shape.heads, shape.kv_heads, shape.head_dim});
  }
  rope.v_norm = shape.value_norm;
  rope.growth = shape.growth;
  rope.rope = shape.layer_norm ? kNoId : 0;
  program.ops.push_back(rope);
}

void Builder::Layer(int layer, BufferId x, BufferId h, BufferId qkv, BufferId attended,
                    BufferId inner) {
  const int q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  program.ops.push_back(Norm(x, h));
  LinearOp project;
  project.weight = Matrix(
      {{shape.type, q_width}, {shape.type, kv_width}, {shape.second_type, kv_width}}, shape.hidden);
  project.bias = Bias(q_width + 2 * kv_width);
  project.in = h;
  project.out = qkv;
  program.ops.push_back(project);
  Append(layer, qkv);
  AttentionOp attention;
  attention.qkv = qkv;
  attention.out = attended;
  attention.layer = layer;
  attention.heads = shape.heads;
  attention.kv_heads = shape.kv_heads;
  attention.head_dim = shape.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  attention.window = program.layer_windows[layer];
  attention.softcap = shape.attention_softcap;
  if (shape.sinks) attention.sinks = Vector(shape.heads, 0.5f);
  program.ops.push_back(attention);
  LinearOp back;
  back.weight = Matrix({{shape.type, shape.hidden}}, q_width);
  back.bias = Bias(shape.hidden);
  back.scale = shape.block_scale;
  back.accumulate = true;
  back.in = attended;
  back.out = x;
  program.ops.push_back(back);
  program.ops.push_back(Norm(x, h));
  if (shape.experts > 0) {
    program.ops.emplace_back(Experts(h, x));
    return;
  }
  LinearOp up;
  up.activation = shape.layer_norm        ? LinearOp::Activation::kRelu
                  : shape.layers % 2 == 0 ? LinearOp::Activation::kSiluGated
                                          : LinearOp::Activation::kGeluTanhGated;
  up.weight =
      shape.layer_norm
          ? Matrix({{shape.type, shape.inner}}, shape.hidden)
          : Matrix({{shape.type, shape.inner}, {shape.second_type, shape.inner}}, shape.hidden);
  up.bias = Bias(shape.inner);
  up.in = h;
  up.out = inner;
  program.ops.push_back(up);
  LinearOp down;
  down.weight = Matrix({{shape.second_type, shape.hidden}}, shape.inner);
  down.bias = Bias(shape.hidden);
  down.scale = shape.block_scale;
  down.accumulate = true;
  down.in = inner;
  down.out = x;
  program.ops.push_back(down);
}

}  // namespace

StepProgram MakeProgram(const ModelShape& shape, WeightStore& store) {
  StepProgram program;
  program.family = "test";
  program.vocab_size = shape.vocabulary;
  program.hidden_size = shape.hidden;
  program.max_positions = 1024;
  program.heads = shape.heads;
  program.kv_heads = shape.kv_heads;
  program.head_dim = shape.head_dim;
  program.layer_windows = shape.windows;
  program.layer_windows.resize(shape.layers, 0);
  Rope rope;
  rope.rotary_dim = shape.head_dim;
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    rope.inverse_frequency.push_back(std::pow(10000.0, -2.0 * i / shape.head_dim));
  }
  program.ropes.push_back(rope);

  Builder b{program, store, shape};
  const BufferId x = b.AddBuffer("x", shape.hidden);
  const BufferId h = b.AddBuffer("h", shape.hidden);
  const BufferId qkv = b.AddBuffer("qkv", (shape.heads + 2 * shape.kv_heads) * shape.head_dim);
  const BufferId attended = b.AddBuffer("attended", shape.heads * shape.head_dim);
  const BufferId inner = b.AddBuffer("inner", shape.inner);
  const BufferId last = b.AddBuffer("last", shape.hidden, true);
  const BufferId logits = b.AddBuffer("logits", shape.vocabulary, true);
  EmbedOp embed;
  embed.table = b.Add(store.RandomWeight(shape.type, shape.vocabulary, shape.hidden, 1.0f));
  embed.scale = 1.5f;
  if (shape.layer_norm) {
    embed.positions =
        b.Add(store.RandomWeight(DType::kF16, program.max_positions + 2, shape.hidden, 0.5f));
    embed.position_offset = 2;
  }
  embed.out = x;
  program.ops.push_back(embed);
  for (int layer = 0; layer < shape.layers; ++layer) b.Layer(layer, x, h, qkv, attended, inner);
  program.ops.push_back(b.Norm(x, h));
  GatherRowsOp gather;
  gather.in = h;
  gather.out = last;
  program.ops.push_back(gather);
  LogitsOp head;
  head.head = embed.table;
  head.scale = 0.5f;
  head.softcap = shape.logits_softcap;
  head.in = last;
  head.out = logits;
  program.ops.push_back(head);
  SampleOp sample;
  sample.logits = logits;
  program.ops.push_back(sample);
  return program;
}

PagedRunner::PagedRunner(const StepProgram& program, const Options& options)
    : options_(options), vocabulary_(program.vocab_size) {
  layout_ = DealLayers(program.layer_windows,
                       KvShapeOf(program, options.block_size, options.kv_type), program.states);
  const int blocks = (options.max_context + options.block_size - 1) / options.block_size;
  const int groups = static_cast<int>(layout_.groups.size());
  std::string error;
  backend_ = MakeCpuBackend(options.cpu, error);
  if (backend_ == nullptr) std::abort();
  ProgramOptions load;
  load.kv = layout_;
  load.page_count = int64_t{blocks} * groups * options.sequences;
  load.max_tokens = options.max_tokens;
  load.max_samples = options.max_tokens;
  load.max_loras = options.max_loras;
  load.max_lora_rank = options.max_lora_rank;
  load.times = options.times;
  loaded_ = backend_->Load(program, load);
  static_cast<cpu::CpuProgram&>(*loaded_).PoisonWorkspace();

  std::vector<int32_t> free_pages(static_cast<size_t>(load.page_count));
  for (size_t i = 0; i < free_pages.size(); ++i) free_pages[i] = static_cast<int32_t>(i);
  std::mt19937 random(7);
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  for (const int32_t page : free_pages) loaded_->PoisonPage(page);
  tables_.resize(options.sequences);
  for (auto& sequence : tables_) {
    for (int group = 0; group < groups; ++group) {
      sequence.emplace_back(free_pages.end() - blocks, free_pages.end());
      free_pages.resize(free_pages.size() - blocks);
    }
  }
}

std::vector<std::vector<float>> PagedRunner::Step(const std::vector<Piece>& pieces) {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> sampled;
  std::vector<BatchRow> rows;
  std::vector<std::vector<std::span<const int32_t>>> tables(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    for (const auto& table : tables_[piece.sequence]) tables[i].emplace_back(table);
    BatchRow row;
    row.first_token = static_cast<int>(tokens.size());
    row.token_count = static_cast<int>(piece.tokens.size());
    row.first_position = piece.begin;
    row.block_tables = tables[i];
    row.adapter = piece.adapter;
    rows.push_back(row);
    for (size_t t = 0; t < piece.tokens.size(); ++t) {
      sampled.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(piece.tokens[t]);
      positions.push_back(piece.begin + static_cast<int32_t>(t));
    }
  }
  std::vector<float> logits(sampled.size() * vocabulary_, std::nanf(""));
  std::vector<SampleRow> sample_rows(sampled.size());
  std::vector<SampleOutput> outputs(sampled.size());
  StepBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.rows = rows;
  batch.sampled_tokens = sampled;
  batch.sample_rows = sample_rows;
  batch.sample_outputs = outputs;
  loaded_->RunWithLogits(batch, logits);
  std::vector<std::vector<float>> result;
  for (size_t i = 0; i < sampled.size(); ++i) {
    result.emplace_back(logits.begin() + static_cast<int64_t>(i) * vocabulary_,
                        logits.begin() + static_cast<int64_t>(i + 1) * vocabulary_);
  }
  return result;
}

void PagedRunner::DropBehindWindow(int sequence, int position) {
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    const int window = layout_.kinds[layout_.groups[group].kind].window;
    if (window == 0) continue;
    const int first_seen = std::max(0, position - window + 1);
    for (int block = 0; block < first_seen / layout_.block_size; ++block) {
      int32_t& page = tables_[sequence][group][block];
      if (page >= 0) loaded_->PoisonPage(page);
      page = -1;
    }
  }
}

void PagedRunner::MergeStates(int sequence, int first, int last) {
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    if (layout_.groups[group].kind != layout_.states.kind) continue;
    std::vector<int32_t>& table = tables_[sequence][group];
    for (int block = first; block < last; ++block) table[block] = table[last];
  }
}

void PagedRunner::ContinueAfter(int sequence, int other, int block) {
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    const bool states = layout_.groups[group].kind == layout_.states.kind;
    for (int b = states ? block : 0; b <= block; ++b) {
      tables_[sequence][group][b] = tables_[other][group][b];
    }
  }
}

Logits RunInChunks(PagedRunner& runner, const std::vector<int32_t>& tokens, int chunk,
                   const std::vector<int32_t>& others, int begin) {
  Logits got;
  const int count = static_cast<int>(tokens.size());
  for (; begin < count; begin += chunk) {
    const int end = std::min(count, begin + chunk);
    const std::vector<int32_t> piece(tokens.begin() + begin, tokens.begin() + end);
    const Logits step = runner.Step({{1, 0, others}, {0, begin, piece}});
    got.insert(got.end(), step.begin() + static_cast<ptrdiff_t>(others.size()), step.end());
  }
  return got;
}

double WorstError(const Logits& got, const std::vector<std::vector<double>>& wanted) {
  double worst = 0.0;
  for (size_t t = 0; t < wanted.size(); ++t) {
    double size = 0.0;
    double error = 0.0;
    for (size_t i = 0; i < wanted[t].size(); ++i) {
      size = std::max(size, std::fabs(wanted[t][i]));
      const double difference = std::fabs(got[t][i] - wanted[t][i]);
      error = std::isnan(difference) ? 1e30 : std::max(error, difference);
    }
    worst = std::max(worst, error / size);
  }
  return worst;
}

std::vector<int32_t> RandomTokens(int count, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % vocabulary));
  return tokens;
}

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> isas;
  for (const char* isa : {"reference", "avx2", "avx512"}) {
    std::string error;
    if (MakeCpuBackend({.threads = 1, .isa = isa}, error) != nullptr) isas.emplace_back(isa);
  }
  return isas;
}

}  // namespace quire::kernels::test
