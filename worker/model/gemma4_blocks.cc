#include "worker/model/gemma4_blocks.h"

#include <cmath>

namespace quire::model {
namespace {

using kernels::BufferId;
using kernels::kNoId;

constexpr float kHalfRoot = 0.70710678f;  // of two summands

// The heads of one kind of layer, of this rank.
struct Heads {
  int kv_heads = 0;
  int head_dim = 0;
  int64_t all_kv_heads = 0;  // of all ranks
  Range queries;
  Range keys;
  int rope = kNoId;
  BufferId qkv = kNoId;
  BufferId query = kNoId;  // of layers that read the keys of others
  BufferId attended = kNoId;
};

struct GemmaBuffers {
  DecoderBuffers shared;
  Heads sliding;
  Heads full;
  BufferId wide_inner = kNoId;
  // Of experts.
  BufferId mixed = kNoId;  // what the mlp and the experts return
  BufferId routed = kNoId;
  // Of layers' own inputs.
  BufferId layer_inputs = kNoId;
  BufferId projected = kNoId;
  BufferId gate = kNoId;
};

Heads MakeHeads(ProgramBuilder& builder, bool full) {
  const load::ModelConfig& config = builder.config();
  const Shard& shard = builder.shard();
  Heads heads;
  if (full) {
    heads = {shard.full_kv_heads, config.gemma.full_head_dim, config.gemma.full_kv_heads,
             shard.full_queries, shard.full_keys};
    heads.rope = builder.AddRope(config.rope, config.gemma.full_head_dim);
  } else {
    heads = {shard.kv_heads, config.head_dim, config.kv_heads, shard.queries, shard.keys};
    heads.rope = builder.AddRope(config.sliding_rope);
  }
  heads.qkv = builder.Buffer(full ? "full_qkv" : "qkv", heads.queries.count + 2 * heads.keys.count);
  if (config.gemma.shared_layers > 0) {
    heads.query = builder.Buffer(full ? "full_query" : "query", heads.queries.count);
  }
  heads.attended = builder.Buffer(full ? "full_attended" : "attended", heads.queries.count);
  return heads;
}

GemmaBuffers MakeGemmaBuffers(ProgramBuilder& builder) {
  const load::ModelConfig& config = builder.config();
  GemmaBuffers buffers;
  buffers.shared.hidden = builder.Buffer("hidden", config.hidden_size);
  buffers.shared.normed = builder.Buffer("normed", config.hidden_size);
  buffers.shared.branch = builder.Buffer("branch", config.hidden_size);
  buffers.shared.inner = builder.Buffer("gated", builder.shard().inner.count);
  buffers.sliding = MakeHeads(builder, /*full=*/false);
  buffers.full = MakeHeads(builder, /*full=*/true);
  if (config.gemma.wide_shared && config.gemma.shared_layers > 0) {
    buffers.wide_inner = builder.Buffer("wide_gated", builder.shard().wide_inner.count);
  }
  if (config.experts.count > 0) {
    buffers.mixed = builder.Buffer("mixed", config.hidden_size);
    buffers.routed = builder.Buffer("routed", config.hidden_size);
  }
  if (config.gemma.layer_input == 0) return buffers;
  const int64_t all = int64_t{config.layers} * config.gemma.layer_input;
  buffers.layer_inputs = builder.Buffer("layer_inputs", all);
  buffers.projected = builder.Buffer("projected", all);
  buffers.gate = builder.Buffer("layer_gate", config.gemma.layer_input);
  return buffers;
}

// What each layer gets from the token itself: a row of a table of its own, and a projection of the
// embedding, normalised for each layer. The mean of both is taken where they are used.
void AddLayerInputs(ProgramBuilder& builder, const GemmaBuffers& buffers) {
  const load::ModelConfig& config = builder.config();
  const int64_t width = config.gemma.layer_input;
  const int64_t all = config.layers * width;
  kernels::EmbedOp embed;
  embed.table =
      builder.Matrix({{Part::kLayerEmbedding, config.vocab_size, builder.shard().vocabulary}}, all);
  embed.scale = std::sqrt(static_cast<float>(width));
  embed.out = buffers.layer_inputs;
  builder.Add(embed);
  builder.AddSum(embed.out);
  kernels::LinearOp project;
  project.weight = builder.Matrix({{Part::kLayerProjection, all}}, config.hidden_size);
  project.scale = 1.0f / std::sqrt(static_cast<float>(config.hidden_size));
  project.in = buffers.shared.hidden;
  project.out = buffers.projected;
  builder.Add(project);
  kernels::NormOp norm;
  norm.weight = builder.Vector({{Part::kLayerProjectionNorm, width}}, "weight");
  norm.epsilon = static_cast<float>(config.norm_epsilon);
  norm.pieces = config.layers;
  norm.accumulate = true;
  norm.in = buffers.projected;
  norm.out = buffers.layer_inputs;
  builder.Add(norm);
}

// qkv = the projections of `normed`, normalised and turned; keys and values go to the layer's
// pages.
void AddHeads(ProgramBuilder& builder, const GemmaBuffers& buffers, const Heads& heads, int layer) {
  using Stack = ProgramBuilder::Stack;
  const load::ModelConfig& config = builder.config();
  const int64_t q_width = int64_t{config.heads} * heads.head_dim;
  const int64_t kv_width = heads.all_kv_heads * heads.head_dim;
  const int owner = config.KeysOf(layer);
  const bool full = config.layer_windows[static_cast<size_t>(layer)] == 0;
  const bool one = full && config.gemma.keys_are_values;
  const Stack query = {Part::kQuery, q_width, heads.queries};
  const Stack key = {Part::kKey, kv_width, heads.keys};
  const Stack value = {one ? Part::kKey : Part::kValue, kv_width, heads.keys};
  const std::initializer_list<Stack> own = {query, key, value};
  const std::initializer_list<Stack> queries = {query};
  const auto& stacks = owner == layer ? own : queries;

  kernels::LinearOp project;
  project.weight = builder.Matrix(stacks, config.hidden_size, layer);
  if (config.qkv_bias) project.bias = builder.Vector(stacks, "bias", layer);
  project.in = buffers.shared.normed;
  project.out = owner == layer ? heads.qkv : heads.query;
  builder.Add(project);

  kernels::RopeAppendOp append;
  append.qkv = project.out;
  append.layer = owner;
  append.heads = builder.shard().heads;
  append.head_dim = heads.head_dim;
  append.q_norm = builder.Vector({{Part::kQueryNorm, heads.head_dim}}, "weight", layer);
  append.norm_epsilon = static_cast<float>(config.norm_epsilon);
  append.rope = heads.rope;
  if (owner == layer) {
    append.kv_heads = heads.kv_heads;
    append.k_norm = builder.Vector({{Part::kKeyNorm, heads.head_dim}}, "weight", layer);
    append.v_norm = true;
  } else {
    for (const Part unread : {Part::kKey, Part::kValue, Part::kKeyNorm}) {
      builder.Ignore(unread, layer);
    }
  }
  builder.Add(append);
}

// branch = the output projection of attention over `normed`.
void AddGemmaAttention(ProgramBuilder& builder, const GemmaBuffers& buffers, int layer) {
  const load::ModelConfig& config = builder.config();
  const int window = config.layer_windows[static_cast<size_t>(layer)];
  const Heads& heads = window == 0 ? buffers.full : buffers.sliding;
  AddHeads(builder, buffers, heads, layer);
  const int owner = config.KeysOf(layer);
  kernels::AttentionOp attention;
  attention.qkv = owner == layer ? heads.qkv : heads.query;
  attention.out = heads.attended;
  attention.layer = owner;
  attention.heads = builder.shard().heads;
  attention.kv_heads = heads.kv_heads;
  attention.head_dim = heads.head_dim;
  attention.scale = static_cast<float>(config.attention_scale);
  attention.window = window;
  builder.Add(attention);

  kernels::LinearOp output;
  output.weight = builder.Matrix({{Part::kOutput, config.hidden_size}},
                                 int64_t{config.heads} * heads.head_dim, layer, heads.queries);
  output.in = heads.attended;
  output.out = buffers.shared.branch;
  builder.AddPartialLinear(output,
                           {.part = Part::kOutput, .layer = layer, .there = config.output_bias});
}

// branch = down(gelu(gate(normed)) * up(normed)), of twice the width in layers that own no keys.
void AddGemmaMlp(ProgramBuilder& builder, const GemmaBuffers& buffers, int layer) {
  const load::ModelConfig& config = builder.config();
  const bool wide = config.gemma.wide_shared && config.KeysOf(layer) != layer;
  const int64_t width = int64_t{config.intermediate_size} * (wide ? 2 : 1);
  const Range inner = wide ? builder.shard().wide_inner : builder.shard().inner;
  kernels::LinearOp first;
  first.activation = kernels::LinearOp::Activation::kGeluTanhGated;
  first.weight = builder.Matrix({{Part::kGate, width, inner}, {Part::kUp, width, inner}},
                                config.hidden_size, layer);
  first.in = buffers.shared.normed;
  first.out = wide ? buffers.wide_inner : buffers.shared.inner;
  builder.Add(first);
  kernels::LinearOp down;
  down.weight = builder.Matrix({{Part::kDown, config.hidden_size}}, width, layer, inner);
  down.in = first.out;
  down.out = buffers.shared.branch;
  builder.AddPartialLinear(down, {.part = Part::kDown, .layer = layer});
}

// mixed = the norm of the mlp's result in `branch` + the norm of what the experts make of `hidden`.
void AddGemmaExperts(ProgramBuilder& builder, const GemmaBuffers& buffers, int layer) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers& shared = buffers.shared;
  AddNorm(builder, {Part::kPostDenseNorm, layer, shared.branch, buffers.mixed});
  kernels::NormOp route;
  route.weight = builder.Vector({{Part::kRouterScale, config.hidden_size}}, "weight", layer);
  route.epsilon = static_cast<float>(config.norm_epsilon);
  route.scale = 1.0f / std::sqrt(static_cast<float>(config.hidden_size));
  route.in = shared.hidden;
  route.out = buffers.routed;
  builder.Add(route);
  AddNorm(builder, {Part::kExpertNorm, layer, shared.hidden, shared.normed});
  kernels::MoeOp moe;
  moe.router = builder.Router(Part::kRouter, config.experts.count, layer);
  moe.expert_scales =
      builder.Vector({{Part::kExpertScales, config.experts.count}}, "weight", layer);
  moe.rule = config.experts.rule;
  TakeExperts(builder, layer, moe);
  moe.activation = kernels::LinearOp::Activation::kGeluTanhGated;
  moe.in = shared.normed;
  moe.router_in = buffers.routed;
  moe.out = shared.branch;
  builder.Add(moe);
  builder.AddSum(moe.out);
  AddNorm(builder,
          {Part::kPostExpertNorm, layer, shared.branch, buffers.mixed, /*accumulate=*/true});
}

// hidden += the layer's own input, gated by `hidden`; then times the layer's factor.
void AddLayerInput(ProgramBuilder& builder, const GemmaBuffers& buffers, int layer, float factor) {
  const load::ModelConfig& config = builder.config();
  const int width = config.gemma.layer_input;
  kernels::LinearOp gate;
  gate.weight = builder.Matrix({{Part::kLayerGate, width}}, config.hidden_size, layer);
  gate.in = buffers.shared.hidden;
  gate.out = buffers.gate;
  builder.Add(gate);
  builder.Add(kernels::SliceGateOp{buffers.gate, buffers.layer_inputs, layer * width, kHalfRoot});
  kernels::LinearOp out;
  out.weight = builder.Matrix({{Part::kLayerOut, config.hidden_size}}, width, layer);
  out.in = buffers.gate;
  out.out = buffers.shared.branch;
  builder.Add(out);
  AddNorm(builder, {Part::kLayerNorm, layer, buffers.shared.branch, buffers.shared.hidden,
                    /*accumulate=*/true, factor});
}

void AddLayer(ProgramBuilder& builder, const GemmaBuffers& buffers, int layer) {
  const DecoderBuffers& shared = buffers.shared;
  AddNorm(builder, {Part::kAttentionNorm, layer, shared.hidden, shared.normed});
  AddGemmaAttention(builder, buffers, layer);
  AddNorm(builder, {Part::kPostAttentionNorm, layer, shared.branch, shared.hidden,
                    /*accumulate=*/true});
  AddNorm(builder, {Part::kMlpNorm, layer, shared.hidden, shared.normed});
  AddGemmaMlp(builder, buffers, layer);
  const bool experts = builder.config().experts.count > 0;
  if (experts) AddGemmaExperts(builder, buffers, layer);
  const bool last = builder.config().gemma.layer_input == 0;
  const float factor = builder.Scalar(Part::kLayerScalar, layer);
  AddNorm(builder, {Part::kPostMlpNorm, layer, experts ? buffers.mixed : shared.branch,
                    shared.hidden, /*accumulate=*/true, last ? factor : 1.0f});
  if (!last) AddLayerInput(builder, buffers, layer, factor);
}

}  // namespace

void WriteGemma4(ProgramBuilder& builder, const DecoderForm& /*form*/) {
  const load::ModelConfig& config = builder.config();
  const GemmaBuffers buffers = MakeGemmaBuffers(builder);
  const kernels::WeightId embedding =
      AddEmbedding(builder, buffers.shared, std::sqrt(static_cast<float>(config.hidden_size)));
  if (config.gemma.layer_input > 0) AddLayerInputs(builder, buffers);
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.Skips(layer)) AddLayer(builder, buffers, layer);
  }
  AddHead(builder, buffers.shared.hidden, embedding);
}

}  // namespace quire::model
