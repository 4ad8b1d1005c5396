#include "worker/model/decoder_blocks.h"

#include <algorithm>
#include <cmath>

#include "worker/model/latent_attention.h"

namespace quire::model {

using kernels::BufferId;
using kernels::kNoId;
using kernels::WeightId;

namespace {

LatentBuffers MakeLatentBuffers(ProgramBuilder& builder) {
  const load::LatentConfig& latent = builder.config().latent;
  const int64_t heads = builder.shard().heads;
  const int64_t width = latent.rank + latent.rope_dim;
  LatentBuffers buffers;
  if (latent.query_rank > 0) {
    buffers.query = builder.Buffer("query", latent.query_rank);
    buffers.query_normed = builder.Buffer("query_normed", latent.query_rank);
  }
  buffers.latents = builder.Buffer("latents", width);
  buffers.absorbed = builder.Buffer("absorbed", heads * width);
  buffers.summed = builder.Buffer("summed", heads * latent.rank);
  return buffers;
}

}  // namespace

DecoderBuffers MakeBuffers(ProgramBuilder& builder, const DecoderForm& form) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  DecoderBuffers buffers;
  buffers.hidden = builder.Buffer("hidden", config.hidden_size);
  buffers.normed = form.pre_norms ? builder.Buffer("normed", config.hidden_size) : buffers.hidden;
  const load::LatentConfig& latent = config.latent;
  if (latent.rank > 0) {
    buffers.qkv = builder.Buffer("queries", shard.queries.count);
    buffers.latent = MakeLatentBuffers(builder);
  } else {
    buffers.qkv = builder.Buffer("qkv", shard.queries.count + 2 * shard.keys.count);
  }
  buffers.attended = builder.Buffer("attended", shard.attended.count);
  if (config.gated_attention) buffers.gate = builder.Buffer("gate", shard.queries.count);
  buffers.recurrent = MakeRecurrentBuffers(builder);
  if (config.HasMlp()) buffers.inner = builder.Buffer("gated", shard.inner.count);
  const load::ExpertConfig& experts = config.experts;
  if (experts.shared_width > 0 && !experts.shared_gated) {
    buffers.shared = builder.Buffer("shared", shard.shared_inner.count);
  }
  if (form.post_norms) buffers.branch = builder.Buffer("branch", config.hidden_size);
  return buffers;
}

WeightId AddEmbedding(ProgramBuilder& builder, const DecoderBuffers& buffers, float scale) {
  const load::ModelConfig& config = builder.config();
  kernels::EmbedOp embed;
  embed.table = builder.Matrix({{Part::kEmbedding, config.vocab_size, builder.shard().vocabulary}},
                               config.hidden_size);
  embed.scale = scale;
  embed.out = buffers.hidden;
  builder.Add(embed);
  builder.AddSum(embed.out);
  return embed.table;
}

void AddNorm(ProgramBuilder& builder, const NormBlock& block) {
  const load::ModelConfig& config = builder.config();
  const auto part = {ProgramBuilder::Stack{block.part, config.hidden_size}};
  kernels::NormOp norm;
  norm.kind = config.layer_norm ? kernels::NormOp::Kind::kLayer : kernels::NormOp::Kind::kRms;
  norm.weight = config.norm_affine ? builder.Vector(part, "weight", block.layer)
                                   : builder.Ones(config.hidden_size);
  if (config.layer_norm && config.norm_affine && config.norm_bias) {
    norm.bias = builder.Vector(part, "bias", block.layer);
  }
  norm.epsilon = static_cast<float>(config.norm_epsilon);
  norm.weight_offset = static_cast<float>(config.norm_weight_offset);
  norm.accumulate = block.accumulate;
  norm.scale = block.scale;
  norm.in = block.in;
  norm.out = block.out;
  builder.Add(norm);
}

namespace {

// Sums over the heads of all ranks, for norms of all of them together.
BufferId AddSquares(ProgramBuilder& builder, BufferId qkv) {
  const Shard& shard = builder.shard();
  // Ranks that are neighbours hold the same heads of keys where there are fewer of these.
  const int holders = std::max(1, shard.ranks / builder.config().kv_heads);
  kernels::HeadSquaresOp squares;
  squares.qkv = qkv;
  squares.out = builder.BufferOnce("squares", 2);
  squares.heads = shard.heads;
  squares.kv_heads = shard.kv_heads;
  squares.head_dim = builder.config().head_dim;
  squares.keys = shard.rank % holders == 0;
  builder.Add(squares);
  builder.AddSum(squares.out);
  return squares.out;
}

void SetHeadNorms(ProgramBuilder& builder, const AttentionBlock& block,
                  kernels::RopeAppendOp& append) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  const auto weights = [&](Part part, int heads, Range kept) {
    if (block.head_norm == kernels::HeadNorm::kRms) {
      return builder.Vector({{part, config.head_dim}}, "weight", block.layer);
    }
    return builder.Vector({{part, int64_t{heads} * config.head_dim, kept}}, "weight", block.layer);
  };
  append.norm = block.head_norm;
  append.q_norm = weights(Part::kQueryNorm, config.heads, shard.queries);
  append.k_norm = weights(Part::kKeyNorm, config.kv_heads, shard.keys);
  append.norm_epsilon = static_cast<float>(config.norm_epsilon);
  append.norm_weight_offset = static_cast<float>(config.norm_weight_offset);
  if (block.head_norm != kernels::HeadNorm::kWhole) return;
  append.norm_heads = config.heads;
  append.norm_kv_heads = config.kv_heads;
  append.squares = AddSquares(builder, append.qkv);
}

}  // namespace

void AddAttention(ProgramBuilder& builder, const DecoderBuffers& buffers,
                  const AttentionBlock& block) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  const int64_t q_width = int64_t{config.heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
  const std::initializer_list<ProgramBuilder::Stack> qkv = {{Part::kQuery, q_width, shard.queries},
                                                            {Part::kKey, kv_width, shard.keys},
                                                            {Part::kValue, kv_width, shard.keys}};

  kernels::LinearOp project;
  if (config.gated_attention) {
    std::vector<ProgramBuilder::Stack> runs = QueryRuns(builder);
    runs.insert(runs.end(), qkv.begin() + 1, qkv.end());
    project.weight = builder.Runs(runs, config.hidden_size, block.layer);
    AddAttentionGate(builder, block.layer, buffers.normed, buffers.gate);
  } else {
    project.weight = builder.Matrix(qkv, config.hidden_size, block.layer);
  }
  if (config.qkv_bias) project.bias = builder.Vector(qkv, "bias", block.layer);
  project.in = buffers.normed;
  project.out = buffers.qkv;
  builder.Add(project);

  kernels::RopeAppendOp append;
  append.qkv = buffers.qkv;
  append.layer = block.layer;
  append.heads = shard.heads;
  append.kv_heads = shard.kv_heads;
  append.head_dim = config.head_dim;
  if (block.head_norms) SetHeadNorms(builder, block, append);
  append.rope = block.rope;
  append.growth = config.query_growth;
  builder.Add(append);

  kernels::AttentionOp attention;
  attention.qkv = buffers.qkv;
  attention.out = buffers.attended;
  attention.layer = block.layer;
  attention.heads = shard.heads;
  attention.kv_heads = shard.kv_heads;
  attention.head_dim = config.head_dim;
  attention.scale = static_cast<float>(config.attention_scale);
  attention.window = config.layer_windows[static_cast<size_t>(block.layer)];
  attention.softcap = static_cast<float>(config.attention_softcap);
  if (block.sinks) {
    const Range heads = {int64_t{shard.rank} * shard.heads, shard.heads};
    attention.sinks = builder.Vector({{Part::kSinks, config.heads, heads}}, "weight", block.layer);
  }
  builder.Add(attention);
  if (config.gated_attention) {
    builder.Add(kernels::GateOp{buffers.attended, buffers.gate, buffers.attended});
  }

  kernels::LinearOp output;
  output.weight =
      builder.Matrix({{Part::kOutput, config.hidden_size}}, q_width, block.layer, shard.queries);
  output.scale = static_cast<float>(config.residual_scale);
  output.accumulate = block.accumulate;
  output.in = buffers.attended;
  output.out = block.out;
  builder.AddPartialLinear(
      output, {.part = Part::kOutput, .layer = block.layer, .there = config.output_bias});
}

namespace {

kernels::LinearOp::Activation ActivationOf(const load::ModelConfig& config) {
  using Activation = load::ModelConfig::Activation;
  using Epilogue = kernels::LinearOp::Activation;
  if (config.activation == Activation::kRelu) return Epilogue::kRelu;
  if (config.activation == Activation::kReluSquared) return Epilogue::kReluSquared;
  if (config.activation == Activation::kClamped) return Epilogue::kClampedGated;
  return config.activation == Activation::kGeluTanh ? Epilogue::kGeluTanhGated
                                                    : Epilogue::kSiluGated;
}

bool IsGated(const load::ModelConfig& config) {
  return kernels::LinearOp::IsGated(ActivationOf(config));
}

// The parts of an mlp, and their inner width.
struct MlpParts {
  Part gate;
  Part up;
  Part down;
  int64_t width;
  Range inner;
};

kernels::MoeOp::Expert AddExpert(ProgramBuilder& builder, const MlpParts& parts,
                                 const Place& place) {
  const int64_t hidden = builder.config().hidden_size;
  const ProgramBuilder::Stack gate = {parts.gate, parts.width, parts.inner};
  const ProgramBuilder::Stack up = {parts.up, parts.width, parts.inner};
  kernels::MoeOp::Expert expert;
  expert.gate_up = IsGated(builder.config()) ? builder.Matrix({gate, up}, hidden, place)
                                             : builder.Matrix({up}, hidden, place);
  expert.down = builder.Matrix({{parts.down, hidden}}, parts.width, place, parts.inner);
  if (place.expert == kNoExpert || !builder.config().experts.biases) return expert;
  expert.gate_up_bias = builder.ExpertBias({gate, up}, place);
  // The sum over ranks adds it once.
  const Shard& shard = builder.shard();
  if (shard.first() || shard.HasWholeExperts(builder.config().experts.count))
    expert.down_bias = builder.ExpertBias({{parts.down, hidden}}, place);
  return expert;
}

MlpParts SharedParts(const ProgramBuilder& builder) {
  return {Part::kSharedGate, Part::kSharedUp, Part::kSharedDown,
          builder.config().experts.shared_width, builder.shard().shared_inner};
}

// moe.out += a shared expert of moe.in: a mixture of one, which everyone chooses.
void AddGatedShared(ProgramBuilder& builder, const kernels::MoeOp& moe, int layer) {
  kernels::MoeOp shared;
  shared.router = builder.Router(Part::kSharedRouter, 1, layer);
  shared.rule.scores = kernels::RoutingRule::Scores::kSigmoid;
  shared.rule.renormalise = false;
  shared.experts = {AddExpert(builder, SharedParts(builder), layer)};
  shared.activation = moe.activation;
  shared.accumulate = true;
  shared.in = moe.in;
  shared.out = moe.out;
  builder.Add(shared);
}

// The same without a gate: an mlp.
void AddPlainShared(ProgramBuilder& builder, const kernels::MoeOp& moe, int layer, BufferId inner) {
  const kernels::MoeOp::Expert expert = AddExpert(builder, SharedParts(builder), layer);
  kernels::LinearOp up;
  up.weight = expert.gate_up;
  up.activation = moe.activation;
  up.in = moe.in;
  up.out = inner;
  builder.Add(up);
  kernels::LinearOp down;
  down.weight = expert.down;
  down.scale = static_cast<float>(builder.config().residual_scale);
  down.accumulate = true;
  down.in = inner;
  down.out = moe.out;
  builder.Add(down);
}

}  // namespace

void AddMlp(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer, BufferId out,
            bool accumulate) {
  const load::ModelConfig& config = builder.config();
  const int64_t width = config.intermediate_size;
  const Range inner = builder.shard().inner;
  const ProgramBuilder::Stack up = {Part::kUp, width, inner};
  const std::initializer_list<ProgramBuilder::Stack> both = {{Part::kGate, width, inner}, up};
  const std::initializer_list<ProgramBuilder::Stack> one = {up};
  kernels::LinearOp first;
  first.activation = ActivationOf(config);
  const auto& stacks = IsGated(config) ? both : one;
  first.weight = builder.Matrix(stacks, config.hidden_size, layer);
  if (config.mlp_bias) first.bias = builder.Vector(stacks, "bias", layer);
  first.in = buffers.normed;
  first.out = buffers.inner;
  builder.Add(first);

  kernels::LinearOp down;
  down.weight = builder.Matrix({{Part::kDown, config.hidden_size}}, width, layer, inner);
  down.scale = static_cast<float>(config.residual_scale);
  down.accumulate = accumulate;
  down.in = buffers.inner;
  down.out = out;
  builder.AddPartialLinear(down, {.part = Part::kDown, .layer = layer, .there = config.mlp_bias});
}

void TakeExperts(ProgramBuilder& builder, int layer, kernels::MoeOp& moe) {
  const load::ExpertConfig& experts = builder.config().experts;
  const MlpParts parts = {Part::kExpertGate, Part::kExpertUp, Part::kExpertDown, experts.width,
                          builder.shard().expert_inner};
  const Range own = builder.shard().experts;
  moe.first_expert = static_cast<int>(own.begin);
  if (own.count < experts.count) moe.all_experts = experts.count;
  for (int64_t expert = own.begin; expert < own.begin + own.count; ++expert) {
    moe.experts.push_back(AddExpert(builder, parts, {layer, static_cast<int>(expert)}));
  }
}

void AddExperts(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer, BufferId out,
                bool accumulate) {
  const load::ModelConfig& config = builder.config();
  const load::ExpertConfig& experts = config.experts;
  const Shard& shard = builder.shard();
  kernels::MoeOp moe;
  moe.router = builder.Router(Part::kRouter, experts.count, layer);
  if (experts.biases) {
    moe.router_bias = builder.Vector({{Part::kRouter, experts.count}}, "bias", layer);
  }
  if (experts.selection_bias) moe.selection_bias = builder.SelectionBias(experts.count, layer);
  moe.rule = experts.rule;
  TakeExperts(builder, layer, moe);
  moe.activation = ActivationOf(config);
  moe.accumulate = accumulate && shard.first();  // the sum over ranks adds it once
  moe.in = buffers.normed;
  moe.out = out;
  builder.Add(moe);
  if (experts.shared_width > 0 && experts.shared_gated) AddGatedShared(builder, moe, layer);
  if (experts.shared_width > 0 && !experts.shared_gated) {
    AddPlainShared(builder, moe, layer, buffers.shared);
  }
  builder.AddSum(out);
}

void AddLogits(ProgramBuilder& builder, BufferId in, WeightId embedding) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  kernels::LogitsOp head;
  head.head = config.tied_embeddings
                  ? embedding
                  : builder.Matrix({{Part::kHead, config.vocab_size, shard.vocabulary}},
                                   config.embedding_size);
  head.scale = static_cast<float>(config.logit_scale);
  head.softcap = static_cast<float>(config.logit_softcap);
  head.in = in;
  head.out = builder.Buffer("logits",
                            kernels::VocabularyOf(config.vocab_size, shard.rank, shard.ranks).width,
                            /*sampled_rows_only=*/true);
  builder.Add(head);
  builder.Add(kernels::SampleOp{head.out});
}

void AddHead(ProgramBuilder& builder, BufferId hidden, WeightId embedding) {
  const int64_t width = builder.config().hidden_size;
  const BufferId last = builder.Buffer("last", width, /*sampled_rows_only=*/true);
  const BufferId last_normed = builder.Buffer("last_normed", width, true);
  builder.Add(kernels::GatherRowsOp{hidden, last});
  AddNorm(builder, {Part::kFinalNorm, kNoLayer, last, last_normed});
  AddLogits(builder, last_normed, embedding);
}

DecoderRopes AddRopes(ProgramBuilder& builder, const DecoderForm& form) {
  const load::ModelConfig& config = builder.config();
  DecoderRopes ropes;
  ropes.full = builder.AddRope(config.rope);
  const bool slides = std::ranges::any_of(config.layer_windows, [](int w) { return w > 0; });
  ropes.sliding = form.sliding_rope && slides ? builder.AddRope(config.sliding_rope) : ropes.full;
  return ropes;
}

void AddLayer(ProgramBuilder& builder, const DecoderForm& form, const DecoderBuffers& buffers,
              const DecoderRopes& ropes, int layer) {
  const load::ModelConfig& config = builder.config();
  // A block's result goes straight to the residual stream, or through its norm.
  const BufferId result = form.post_norms ? buffers.branch : buffers.hidden;
  const auto add_before = [&](Part norm) {
    if (form.pre_norms) AddNorm(builder, {norm, layer, buffers.hidden, buffers.normed});
  };
  const auto add_result = [&](Part norm) {
    if (!form.post_norms) return;
    AddNorm(builder, {norm, layer, result, buffers.hidden, /*accumulate=*/true});
  };
  const bool windowed = config.layer_windows[static_cast<size_t>(layer)] > 0;
  const int turns = !config.HasRope(layer) ? kNoId : windowed ? ropes.sliding : ropes.full;
  add_before(Part::kAttentionNorm);
  if (config.IsRecurrent(layer)) {
    AddRecurrent(builder, buffers.recurrent, layer, buffers.normed, result);
  } else {
    const auto add_attention = config.latent.rank > 0 ? AddLatentAttention : AddAttention;
    add_attention(builder, buffers,
                  {layer, turns, form.head_norms || config.head_norms, form.sinks, result,
                   /*accumulate=*/!form.post_norms, form.head_norm});
  }
  add_result(Part::kPostAttentionNorm);
  if (!form.parallel) add_before(Part::kMlpNorm);
  const auto add_block = config.HasExperts(layer) ? AddExperts : AddMlp;
  add_block(builder, buffers, layer, result, /*accumulate=*/!form.post_norms);
  add_result(Part::kPostMlpNorm);
}

namespace {

// Shows the stream that enters the layer, where the rank asks for it.
void AddFeature(ProgramBuilder& builder, BufferId hidden, int layer) {
  const std::vector<int>& features = builder.shard().features;
  const auto found = std::ranges::find(features, layer);
  if (found == features.end()) return;
  const int64_t width = builder.config().hidden_size;
  const BufferId all =
      builder.BufferOnce("features", width * static_cast<int64_t>(features.size()));
  builder.Add(kernels::CopyOp{hidden, all, static_cast<int>((found - features.begin()) * width)});
  builder.Show(all);
}

}  // namespace

void WriteDecoder(ProgramBuilder& builder, const DecoderForm& form) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers buffers = MakeBuffers(builder, form);
  const float scale =
      (form.scaled_embeddings ? std::sqrt(static_cast<float>(config.hidden_size)) : 1.0f) *
      static_cast<float>(config.embedding_scale);
  const WeightId embedding = AddEmbedding(builder, buffers, scale);
  const DecoderRopes ropes = AddRopes(builder, form);
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.Skips(layer)) continue;
    AddFeature(builder, buffers.hidden, layer);
    AddLayer(builder, form, buffers, ropes, layer);
  }
  AddFeature(builder, buffers.hidden, config.layers);
  AddHead(builder, buffers.hidden, embedding);
}

}  // namespace quire::model
