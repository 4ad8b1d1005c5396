#include "worker/model/latent_attention.h"

#include <algorithm>
#include <cmath>

namespace quire::model {
namespace {

using kernels::BufferId;
using kernels::WeightId;

// DeepSeek's norms of what lies between two products have this one, whatever the others have.
constexpr float kInnerEpsilon = 1e-6f;

WeightId Vector(ProgramBuilder& builder, Part part, int64_t size, const char* suffix, int layer) {
  return builder.Vector({{part, size}}, suffix, layer);
}

void AddProduct(ProgramBuilder& builder, WeightId weight, WeightId bias, BufferId in,
                BufferId out) {
  kernels::LinearOp op;
  op.weight = weight;
  op.bias = bias;
  op.in = in;
  op.out = out;
  builder.Add(op);
}

// queries = the heads of this rank, in one product or in two with a norm between them.
void AddQueries(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer) {
  const load::ModelConfig& config = builder.config();
  const load::LatentConfig& latent = config.latent;
  const int64_t rows = int64_t{config.heads} * config.head_dim;
  const Range kept = builder.shard().queries;
  if (latent.query_rank == 0) {
    AddProduct(builder, builder.Matrix({{Part::kQuery, rows, kept}}, config.hidden_size, layer),
               kernels::kNoId, buffers.normed, buffers.qkv);
    return;
  }
  const WeightId bias = config.qkv_bias
                            ? Vector(builder, Part::kQueryDown, latent.query_rank, "bias", layer)
                            : kernels::kNoId;
  AddProduct(builder,
             builder.Matrix({{Part::kQueryDown, latent.query_rank}}, config.hidden_size, layer),
             bias, buffers.normed, buffers.latent.query);
  kernels::NormOp norm;
  norm.weight = Vector(builder, Part::kQueryDownNorm, latent.query_rank, "weight", layer);
  norm.epsilon = kInnerEpsilon;
  norm.in = buffers.latent.query;
  norm.out = buffers.latent.query_normed;
  builder.Add(norm);
  AddProduct(builder, builder.Matrix({{Part::kQueryUp, rows, kept}}, latent.query_rank, layer),
             kernels::kNoId, norm.out, buffers.qkv);
}

// latents = the whole of them on every rank: all heads read them.
void AddLatents(ProgramBuilder& builder, const DecoderBuffers& buffers,
                const AttentionBlock& block) {
  const load::ModelConfig& config = builder.config();
  const load::LatentConfig& latent = config.latent;
  const int64_t width = latent.rank + latent.rope_dim;
  const WeightId bias = config.qkv_bias
                            ? Vector(builder, Part::kLatentDown, width, "bias", block.layer)
                            : kernels::kNoId;
  AddProduct(builder, builder.Matrix({{Part::kLatentDown, width}}, config.hidden_size, block.layer),
             bias, buffers.normed, buffers.latent.latents);
  kernels::LatentAppendOp append;
  append.queries = buffers.qkv;
  append.latents = buffers.latent.latents;
  append.layer = block.layer;
  append.heads = builder.shard().heads;
  append.query_dim = config.head_dim;
  append.rank = latent.rank;
  append.rope_dim = latent.rope_dim;
  append.norm = Vector(builder, Part::kLatentNorm, latent.rank, "weight", block.layer);
  append.norm_epsilon = kInnerEpsilon;
  append.rope = block.rope;
  append.pairs = latent.pairs;
  builder.Add(append);
}

enum class HeadPart { kKeys, kValues };

// The matrices of this rank's heads; that of keys is transposed, to multiply queries.
void AddHeads(ProgramBuilder& builder, HeadPart part, int layer, BufferId in, BufferId out) {
  kernels::HeadLinearOp op;
  const int first = builder.shard().rank * builder.shard().heads;
  for (int head = first; head < first + builder.shard().heads; ++head) {
    op.weights.push_back(part == HeadPart::kKeys ? builder.HeadKeys({layer, head})
                                                 : builder.HeadValues({layer, head}));
  }
  op.in = in;
  op.out = out;
  builder.Add(op);
}

}  // namespace

void AddLatentAttention(ProgramBuilder& builder, const DecoderBuffers& buffers,
                        const AttentionBlock& block) {
  const load::ModelConfig& config = builder.config();
  const load::LatentConfig& latent = config.latent;
  const Shard& shard = builder.shard();
  AddQueries(builder, buffers, block.layer);
  AddLatents(builder, buffers, block);
  AddHeads(builder, HeadPart::kKeys, block.layer, buffers.qkv, buffers.latent.absorbed);
  kernels::LatentAttentionOp attention;
  attention.queries = buffers.latent.absorbed;
  attention.out = buffers.latent.summed;
  attention.layer = block.layer;
  attention.heads = shard.heads;
  attention.rank = latent.rank;
  attention.rope_dim = latent.rope_dim;
  attention.scale = static_cast<float>(config.attention_scale);
  builder.Add(attention);
  AddHeads(builder, HeadPart::kValues, block.layer, buffers.latent.summed, buffers.attended);
  kernels::LinearOp output;
  output.weight =
      builder.Matrix({{Part::kOutput, config.hidden_size}},
                     int64_t{config.heads} * latent.value_dim, block.layer, shard.attended);
  output.scale = static_cast<float>(config.residual_scale);
  output.accumulate = block.accumulate;
  output.in = buffers.attended;
  output.out = block.out;
  builder.AddPartialLinear(
      output, {.part = Part::kOutput, .layer = block.layer, .there = config.output_bias});
}

void ReadLatents(JsonReader& reader, load::ModelConfig& config) {
  const auto read = [&reader](std::string_view key) {
    return static_cast<int>(reader.RequiredInt(key));
  };
  load::LatentConfig& latent = config.latent;
  latent.rank = read("kv_lora_rank");
  if (latent.rank < 1) reader.Fail("kv_lora_rank must be at least 1");
  latent.query_rank = static_cast<int>(reader.Int("q_lora_rank", 0));  // null where there is none
  latent.rope_dim = read("qk_rope_head_dim");
  latent.value_dim = read("v_head_dim");
  latent.pairs = reader.Bool("rope_interleave", true);
  const int64_t head_dim = reader.RequiredInt("qk_nope_head_dim") + latent.rope_dim;
  config.head_dim = static_cast<int>(std::min(head_dim, kAnyInt));
  config.rotary_dim = latent.rope_dim;
  config.kv_heads = 1;
  if (config.head_dim < 1) return;  // CheckModelConfig refuses it
  const double magnitude = config.rope.score_magnitude;
  config.attention_scale = magnitude * magnitude / std::sqrt(static_cast<double>(config.head_dim));
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  if (reader.Has("index_topk")) {
    reader.Fail("index_topk: sparse attention with an indexer is not served");
  }
}

void ReadLatentsGguf(GgufReader& reader, load::ModelConfig& config) {
  load::LatentConfig& latent = config.latent;
  latent.rank = ClampCount(reader.RequiredInt("attention.kv_lora_rank"));
  if (latent.rank < 1) reader.Fail("attention.kv_lora_rank must be at least 1");
  latent.query_rank = ClampCount(reader.Int("attention.q_lora_rank", 0));
  latent.rope_dim = ClampCount(reader.RequiredInt("rope.dimension_count"));
  if (!reader.Has("attention.key_length_mla")) {
    return reader.Fail(
        "attention.key_length_mla is missing: keys and values of heads in one tensor (attn_kv_b) "
        "are not served, convert the model with a newer llama.cpp");
  }
  config.head_dim = ClampCount(reader.RequiredInt("attention.key_length_mla"));
  latent.value_dim = ClampCount(reader.RequiredInt("attention.value_length_mla"));
  const int64_t width = int64_t{latent.rank} + latent.rope_dim;
  const int64_t key_length = reader.Int("attention.key_length", width);
  if (key_length != width) {
    reader.Fail(absl::StrCat("attention.key_length is ", key_length, ", expected is ", width,
                             ", the sum of kv_lora_rank and rope.dimension_count"));
  }
  config.rotary_dim = latent.rope_dim;
  config.kv_heads = 1;
  if (config.head_dim < 1) return;  // CheckModelConfig refuses it
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  // Where the file has YaRN's logarithm, it multiplies scores and not cosines and sines.
  const double log_factor = reader.Double("rope.scaling.yarn_log_multiplier", 0.0);
  if (config.rope.scaling != load::RopeConfig::Scaling::kYarn || log_factor == 0.0) return;
  const double magnitude = 1.0 + log_factor * std::log(std::max(config.rope.factor, 1.0));
  config.attention_scale *= magnitude * magnitude;
  config.rope.attention_factor = reader.Double("rope.scaling.attn_factor", 1.0);
  config.sliding_rope = config.rope;
}

}  // namespace quire::model
