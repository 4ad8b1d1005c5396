#include "cli/models/weight_layouts.h"

#include <cmath>
#include <string>
#include <utility>

#include "common/check.h"

namespace quire::cli {
namespace {

using Family = ShapeFamily;

constexpr WeightSpread kNorm = {1.0f, 0.05f};

// Adds the tensors of one layer.
class LayerTensors {
 public:
  LayerTensors(const ModelShape& shape, int layer, std::vector<ShapeTensor>& tensors)
      : shape_(shape),
        layer_(layer),
        residual_(1.0 / std::sqrt(2.0 * shape.layers)),
        tensors_(tensors) {}

  void Add() {
    Norm("attn_norm", shape_.hidden);
    Norm(shape_.family == Family::kQwen35 ? "post_attention_norm" : "ffn_norm", shape_.hidden);
    if (shape_.family == Family::kDeepseek2) {
      Latents();
    } else if (shape_.delta.interval > 0 && (layer_ + 1) % shape_.delta.interval != 0) {
      DeltaRule();
    } else {
      Heads();
    }
    if (shape_.experts.count > 0 && layer_ >= shape_.experts.dense_layers) {
      Mixture();
    } else {
      Mlp("", shape_.inner);
    }
  }

 private:
  void Put(std::string_view name, std::vector<int64_t> dims, WeightSpread spread, bool floats) {
    std::string whole = "blk." + std::to_string(layer_) + "." + std::string(name);
    tensors_.push_back({std::move(whole), std::move(dims), spread, floats});
  }
  void Norm(const std::string& name, int width) { Put(name + ".weight", {width}, kNorm, true); }
  void Matrix(const std::string& name, std::vector<int64_t> dims, double gain = 1.0) {
    const double deviation = gain / std::sqrt(static_cast<double>(dims.back()));
    Put(name + ".weight", std::move(dims), {0.0f, static_cast<float>(deviation)}, false);
  }

  // Qwen3.5 has a gate of as many elements as its queries, in the same matrix.
  void Heads() {
    const int width = shape_.heads * shape_.head_dim, keys = shape_.kv_heads * shape_.head_dim;
    Norm("attn_q_norm", shape_.head_dim);
    Norm("attn_k_norm", shape_.head_dim);
    Matrix("attn_q", {shape_.family == Family::kQwen35 ? 2 * width : width, shape_.hidden});
    Matrix("attn_k", {keys, shape_.hidden});
    Matrix("attn_v", {keys, shape_.hidden});
    Matrix("attn_output", {shape_.hidden, width}, residual_);
  }

  void Latents() {
    const ModelShape::Latent& latent = shape_.latent;
    const int nope = shape_.head_dim - latent.rope;
    Norm("attn_kv_a_norm", latent.rank);
    Matrix("attn_q", {shape_.heads * shape_.head_dim, shape_.hidden});
    Matrix("attn_kv_a_mqa", {latent.rank + latent.rope, shape_.hidden});
    Matrix("attn_k_b", {shape_.heads, latent.rank, nope});
    Matrix("attn_v_b", {shape_.heads, latent.value, latent.rank});
    Matrix("attn_output", {shape_.hidden, shape_.heads * latent.value}, residual_);
  }

  void DeltaRule() {
    const ModelShape::Delta& delta = shape_.delta;
    const int values = delta.value_heads * delta.head_dim;
    const int channels = 2 * delta.key_heads * delta.head_dim + values;
    Matrix("attn_qkv", {channels, shape_.hidden});
    Matrix("attn_gate", {values, shape_.hidden});
    Put("ssm_conv1d.weight", {channels, ModelShape::kDeltaTaps}, {0.0f, 0.5f}, true);
    Put("ssm_dt.bias", {delta.value_heads}, {0.5f, 0.3f}, true);
    Put("ssm_a", {delta.value_heads}, {-4.0f, 0.5f}, true);  // the decay: below zero
    Matrix("ssm_beta", {delta.value_heads, shape_.hidden});
    Matrix("ssm_alpha", {delta.value_heads, shape_.hidden});
    Norm("ssm_norm", delta.head_dim);
    Matrix("ssm_out", {shape_.hidden, values}, residual_);
  }

  void Mlp(const std::string& suffix, int inner) {
    Matrix("ffn_gate" + suffix, {inner, shape_.hidden});
    Matrix("ffn_up" + suffix, {inner, shape_.hidden});
    Matrix("ffn_down" + suffix, {shape_.hidden, inner}, residual_);
  }

  void Mixture() {
    const ModelShape::Experts& experts = shape_.experts;
    const float loud = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.hidden)));
    Put("ffn_gate_inp.weight", {experts.count, shape_.hidden}, {0.0f, loud}, true);
    Matrix("ffn_gate_exps", {experts.count, experts.inner, shape_.hidden});
    Matrix("ffn_up_exps", {experts.count, experts.inner, shape_.hidden});
    Matrix("ffn_down_exps", {experts.count, shape_.hidden, experts.inner}, residual_);
    if (experts.shared > 0) Mlp("_shexp", experts.shared * experts.inner);
  }

  const ModelShape& shape_;
  const int layer_;
  const double residual_;  // of what a layer adds: the sum of all stays near 1
  std::vector<ShapeTensor>& tensors_;
};

// Settings under the name of the family.
class Settings {
 public:
  Settings(const ModelShape& shape, GgufBytes& out)
      : prefix_(std::string(GgufFamily(shape)) + "."), out_(out) {}
  void Number(const std::string& key, int value) {
    out_.Key(prefix_ + key, GgufValueType::kUint32);
    out_.Number(static_cast<uint32_t>(value));
  }
  void Real(const std::string& key, float value) {
    out_.Key(prefix_ + key, GgufValueType::kFloat32);
    out_.Float(value);
  }

 private:
  const std::string prefix_;
  GgufBytes& out_;
};

}  // namespace

std::string_view GgufFamily(const ModelShape& shape) {
  switch (shape.family) {
    case Family::kLlama:
      return "llama";
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3Moe:
      return "qwen3moe";
    case Family::kQwen35:
      return "qwen35";
    case Family::kDeepseek2:
      return "deepseek2";
  }
  return "";
}

void AddFamilySettings(const ModelShape& shape, GgufBytes& out) {
  Settings settings(shape, out);
  if (shape.experts.count > 0) {
    settings.Number("expert_count", shape.experts.count);
    settings.Number("expert_used_count", shape.experts.chosen);
    settings.Number("expert_feed_forward_length", shape.experts.inner);
  }
  if (shape.family == Family::kDeepseek2) {
    const ModelShape::Latent& latent = shape.latent;
    settings.Number("attention.key_length", latent.rank + latent.rope);
    settings.Number("attention.value_length", latent.rank);
    settings.Number("attention.key_length_mla", shape.head_dim);
    settings.Number("attention.value_length_mla", latent.value);
    settings.Number("attention.q_lora_rank", 0);
    settings.Number("attention.kv_lora_rank", latent.rank);
    settings.Number("rope.dimension_count", latent.rope);
    settings.Number("leading_dense_block_count", shape.experts.dense_layers);
    settings.Number("expert_shared_count", shape.experts.shared);
    settings.Number("expert_gating_func", 1);  // softmax
    settings.Real("expert_weights_scale", 1.0f);
    settings.Number("vocab_size", shape.vocabulary);
    return;
  }
  settings.Number("attention.key_length", shape.head_dim);
  settings.Number("attention.value_length", shape.head_dim);
  if (shape.family != Family::kQwen35) return;
  const ModelShape::Delta& delta = shape.delta;
  const int rotary = shape.head_dim / 4;
  settings.Number("rope.dimension_count", rotary);
  settings.Number("ssm.conv_kernel", ModelShape::kDeltaTaps);
  settings.Number("ssm.state_size", delta.head_dim);
  settings.Number("ssm.group_count", delta.key_heads);
  settings.Number("ssm.time_step_rank", delta.value_heads);
  settings.Number("ssm.inner_size", delta.value_heads * delta.head_dim);
  settings.Number("full_attention_interval", delta.interval);
  // Of time, height, width: text has the time in all of them.
  out.Array(std::string(GgufFamily(shape)) + ".rope.dimension_sections", GgufValueType::kInt32, 4);
  const int third = rotary / 2 / 3;
  for (const int part : {rotary / 2 - 2 * third, third, third, 0}) out.Number(part);
}

std::vector<ShapeTensor> GgufTensorsOf(const ModelShape& shape, int layers) {
  QUIRE_CHECK(OnlyGguf(shape));
  std::vector<ShapeTensor> tensors;
  const WeightSpread words = WordSpread(shape);
  const std::vector<int64_t> dims = {shape.vocabulary, shape.hidden};
  tensors.push_back({"token_embd.weight", dims, words});
  if (!shape.tied) tensors.push_back({"output.weight", dims, words});
  tensors.push_back({"output_norm.weight", {shape.hidden}, kNorm, true});
  for (int layer = 0; layer < layers; ++layer) LayerTensors(shape, layer, tensors).Add();
  return tensors;
}

}  // namespace quire::cli
