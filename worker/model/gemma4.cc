// Gemma 4 (text): norms on both sides of every block and of every head, values included. Full
// layers with wider heads lie between sliding ones, and the result of each layer has a factor. In E
// models the last layers read the keys of others, and each gets an input from the token itself. A
// models have experts beside the mlp.
#include <cmath>

#include "worker/model/family.h"
#include "worker/model/gemma4_blocks.h"
#include "worker/model/gemma4_gguf.h"

namespace quire::model {
namespace {

constexpr int kGemma4Pattern = 6;

void ReadGemma4Rope(JsonReader& reader, load::ModelConfig& config) {
  using Scaling = load::RopeConfig::Scaling;
  config.sliding_rope.theta = 10'000.0;
  config.rope.theta = 1'000'000.0;
  config.rope.scaling = Scaling::kProportional;
  config.rope.proportion = 0.25;
  const json::Object* parameters = reader.ObjectAt("rope_parameters");
  if (parameters == nullptr) return;
  JsonReader nested(*parameters, reader.path());
  if (const json::Object* sliding = nested.ObjectAt("sliding_attention"); sliding != nullptr) {
    RefusePartialRotation(reader, *sliding);
    ReadScaling(reader, *sliding, config.max_positions, config.sliding_rope);
  }
  if (const json::Object* full = nested.ObjectAt("full_attention"); full != nullptr) {
    JsonReader rope(*full, reader.path());
    if (rope.String("rope_type", "default") == "proportional") {
      config.rope.theta = rope.Double("rope_theta", config.rope.theta);
      config.rope.factor = rope.Double("factor", 1.0);
      config.rope.proportion = rope.Double("partial_rotary_factor", 1.0);
    } else {
      config.rope = load::RopeConfig{};
      config.rope.theta = 1'000'000.0;
      RefusePartialRotation(reader, *full);
      ReadScaling(reader, *full, config.max_positions, config.rope);
    }
    if (!rope.status().ok()) reader.Fail("rope: " + StatusMessage(rope.status()));
  }
  if (!nested.status().ok()) reader.Fail("rope: " + StatusMessage(nested.status()));
}

// Newer files name the heads of every full layer, which must be the same.
void ReadHeadsByLayer(JsonReader& reader, load::ModelConfig& config) {
  const json::Object* layers = reader.ObjectAt("per_layer_config");
  if (layers == nullptr) return;
  JsonReader by_layer(*layers, reader.path());
  bool first = true;
  for (int layer = 0; layer < static_cast<int>(config.layer_windows.size()); ++layer) {
    const json::Object* object = by_layer.ObjectAt(absl::StrCat(layer));
    if (object == nullptr) continue;
    JsonReader own(*object, reader.path());
    const auto head_dim = static_cast<int>(own.Int("head_dim", config.head_dim));
    const auto kv_heads = static_cast<int>(own.Int("num_key_value_heads", config.kv_heads));
    const bool full = config.layer_windows[static_cast<size_t>(layer)] == 0;
    const bool same = full ? first || (head_dim == config.gemma.full_head_dim &&
                                       kv_heads == config.gemma.full_kv_heads)
                           : head_dim == config.head_dim && kv_heads == config.kv_heads;
    if (!same || !own.status().ok()) {
      return reader.Fail(absl::StrCat("per_layer_config: layer ", layer,
                                      " has other heads than the layers of its kind"));
    }
    if (!full) continue;
    config.gemma.full_head_dim = head_dim;
    config.gemma.full_kv_heads = kv_heads;
    first = false;
  }
  if (!by_layer.status().ok()) reader.Fail(StatusMessage(by_layer.status()));
}

void ReadGemma4Json(JsonReader& reader, load::ModelConfig& config) {
  if (reader.String("use_bidirectional_attention", "") == "all") {
    reader.Fail("use_bidirectional_attention \"all\" is not served");
  }
  if (reader.Bool("enable_moe_block", false)) {
    ReadExperts(reader, config, {.chosen = "top_k_experts", .renormalise = true});
    config.experts.rule.renormalise = true;
  }
  config.attention_scale = 1.0;
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  ReadWindows(reader, config, reader.Int("sliding_window", 512),
              [](int i) { return (i + 1) % kGemma4Pattern != 0; });
  if (!config.layer_windows.empty()) config.layer_windows.back() = 0;
  load::GemmaForm& form = config.gemma;
  form.keys_are_values = reader.Bool("attention_k_eq_v", false);
  form.full_head_dim = static_cast<int>(reader.Int("global_head_dim", 512));
  form.full_kv_heads = static_cast<int>(
      form.keys_are_values ? reader.Int("num_global_key_value_heads", config.kv_heads)
                           : config.kv_heads);
  form.shared_layers = static_cast<int>(reader.Int("num_kv_shared_layers", 0));
  form.wide_shared = reader.Bool("use_double_wide_mlp", false);
  form.layer_input = static_cast<int>(reader.Int("hidden_size_per_layer_input", 256));
  const int64_t vocabulary = reader.Int("vocab_size_per_layer_input", 262'144);
  if (form.layer_input > 0 && vocabulary != config.vocab_size) {
    reader.Fail(absl::StrCat("vocab_size_per_layer_input is ", vocabulary,
                             ", served is that of vocab_size, ", config.vocab_size));
  }
  ReadHeadsByLayer(reader, config);
}

constexpr TensorName kGemma4Tensors[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kMlpNorm, "pre_feedforward_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
    {Part::kLayerEmbedding, "embed_tokens_per_layer"},
    {Part::kLayerProjection, "per_layer_model_projection"},
    {Part::kLayerProjectionNorm, "per_layer_projection_norm"},
    {Part::kLayerGate, "per_layer_input_gate"},
    {Part::kLayerOut, "per_layer_projection"},
    {Part::kLayerNorm, "post_per_layer_input_norm"},
    {Part::kLayerScalar, "layer_scalar$"},
    {Part::kRouter, "router.proj"},
    {Part::kRouterScale, "router.scale$"},
    {Part::kExpertScales, "router.per_expert_scale$"},
    {Part::kPostDenseNorm, "post_feedforward_layernorm_1"},
    {Part::kExpertNorm, "pre_feedforward_layernorm_2"},
    {Part::kPostExpertNorm, "post_feedforward_layernorm_2"},
    {Part::kExpertGate, "experts.gate_up_proj$"},
    {Part::kExpertUp, "experts.gate_up_proj$"},
    {Part::kExpertDown, "experts.down_proj$"},
};

constexpr TensorName kGemma4GgufTensors[] = {
    {Part::kLayerEmbedding, "per_layer_token_embd"},
    {Part::kLayerProjection, "per_layer_model_proj"},
    {Part::kLayerProjectionNorm, "per_layer_proj_norm"},
    {Part::kLayerGate, "inp_gate"},
    {Part::kLayerOut, "proj"},
    {Part::kLayerNorm, "post_norm"},
    {Part::kLayerScalar, "layer_output_scale"},
    {Part::kRouterScale, "ffn_gate_inp.scale$"},
    {Part::kExpertScales, "ffn_down_exps.scale$"},
    {Part::kPostDenseNorm, "post_ffw_norm_1"},
    {Part::kExpertNorm, "pre_ffw_norm_2"},
    {Part::kPostExpertNorm, "post_ffw_norm_2"},
    {Part::kExpertGate, "ffn_gate_up_exps"},
    {Part::kExpertUp, "ffn_gate_up_exps"},
};

}  // namespace

extern const Family kGemma4{
    .name = "gemma4",
    .title = "Gemma 4 (text)",
    .json = {.names = {{"Gemma4ForCausalLM", "gemma4_text"},
                       {"Gemma4ForConditionalGeneration", "gemma4"}},
             .vocab_size = 262'144,
             .heads = 8,
             .kv_heads = 4,
             .head_dim = 256,
             .max_positions = 131'072,
             .tied_embeddings = true,
             .activation_key = "hidden_activation",
             .activation = "gelu_pytorch_tanh",
             .attention_bias = true,
             .rope = ReadGemma4Rope,
             .read = ReadGemma4Json},
    .gguf = {.architecture = "gemma4",
             .kinds_of_layers = true,
             .experts = GgufForm::Experts::kRenormalised,
             .read = ReadGemma4Gguf},
    .tensors = {.own = kGemma4Tensors, .own_gguf = kGemma4GgufTensors, .experts_stacked = true},
    .decoder = {.head_norms = true, .post_norms = true, .scaled_embeddings = true},
    .write = WriteGemma4,
};

}  // namespace quire::model
