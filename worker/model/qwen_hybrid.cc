// Qwen3-Next and Qwen3.5 (Qwen3.6 too): three layers of the gated delta rule for each one with
// gated attention, dense or with experts and a shared one. Checkpoints for images and text are
// served for text.
#include "kernels/kv_layout.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

constexpr double kTurned = 0.25;  // of a head, where files do not say

void ReadHybridRope(JsonReader& reader, load::ModelConfig& config) {
  ReadPartialRope(reader, config, kTurned);
}

void ReadDelta(JsonReader& reader, load::ModelConfig& config) {
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.kind = load::RecurrentConfig::Kind::kGatedDelta;
  recurrent.taps = static_cast<int>(reader.Int("linear_conv_kernel_dim", 4));
  recurrent.key_heads = static_cast<int>(reader.Int("linear_num_key_heads", 16));
  recurrent.value_heads = static_cast<int>(reader.Int("linear_num_value_heads", 32));
  recurrent.key_dim = static_cast<int>(reader.Int("linear_key_head_dim", 128));
  recurrent.value_dim = static_cast<int>(reader.Int("linear_value_head_dim", 128));
  config.norm_weight_offset = 1.0;
  config.gated_attention = true;
  if (!reader.Bool("attn_output_gate", true)) {
    reader.Fail("attn_output_gate is false: only gated attention is served");
  }
  if (reader.Bool("attention_bias", false)) reader.Fail("attention_bias is not served");
  const int64_t interval = reader.Int("full_attention_interval", 4);
  if (interval < 1) return reader.Fail("full_attention_interval must be at least 1");
  ReadRecurrentLayers(reader, config, {"linear_attention"},
                      [interval](int layer) { return (layer + 1) % interval != 0; });
}

void ReadHybridExperts(JsonReader& reader, load::ModelConfig& config) {
  ReadExperts(reader, config, {.renormalise = true});
  config.experts.shared_width =
      static_cast<int>(reader.RequiredInt("shared_expert_intermediate_size"));
}

void ReadQwen3Next(JsonReader& reader, load::ModelConfig& config) {
  ReadDelta(reader, config);
  config.recurrent.packed = config.recurrent.packed_gates = true;
  ReadHybridExperts(reader, config);
}

void ReadQwen35Moe(JsonReader& reader, load::ModelConfig& config) {
  ReadDelta(reader, config);
  ReadHybridExperts(reader, config);
  config.experts.rule.renormalise = true;
}

// What Qwen3-Next and Qwen3.5 share.
void ReadDeltaGguf(GgufReader& reader, load::ModelConfig& config) {
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.kind = load::RecurrentConfig::Kind::kGatedDelta;
  ReadStateSizes(reader, config);
  config.gated_attention = true;
  const int64_t interval = reader.Int("full_attention_interval", 4);
  if (interval < 1) return reader.Fail("full_attention_interval must be at least 1");
  const bool listed = reader.Has("attention.recurrent_layers");
  const std::vector<int64_t> recurs =
      listed ? reader.LayerInts("attention.recurrent_layers", config.layers)
             : std::vector<int64_t>();
  for (int layer = 0; layer < config.layers; ++layer) {
    const bool keeps_state =
        listed ? recurs[static_cast<size_t>(layer)] != 0 : (layer + 1) % interval != 0;
    config.layer_windows.push_back(keeps_state ? kernels::kNoKeys : 0);
  }
}

// Newer files have q, k and v of all heads in one tensor and z in another, older ones all four by
// key head.
void ReadQwen3NextGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadDeltaGguf(reader, config);
  config.recurrent.packed_gates = true;
  for (int layer = 0; layer < config.layers; ++layer) {
    config.recurrent.packed |= reader.HasTensor(absl::StrCat("blk.", layer, ".ssm_in.weight"));
  }
}

void ReadQwen35Gguf(GgufReader& reader, load::ModelConfig& config) {
  ReadDeltaGguf(reader, config);
  config.recurrent.tiled = config.recurrent.value_heads != config.recurrent.key_heads;
}

constexpr TensorName kQwen35GgufTensors[] = {
    {Part::kRecurrentIn, "attn_qkv"},        {Part::kRecurrentZ, "attn_gate"},
    {Part::kRecurrentB, "ssm_beta"},         {Part::kRecurrentA, "ssm_alpha"},
    {Part::kMlpNorm, "post_attention_norm"},
};

constexpr TensorName kQwen3NextTensors[] = {
    {Part::kRecurrentPacked, "linear_attn.in_proj_qkvz"},
    {Part::kRecurrentB, "linear_attn.in_proj_ba"},
};

constexpr TensorName kQwen3NextGgufTensors[] = {
    {Part::kRecurrentIn, "attn_qkv"},
    {Part::kRecurrentZ, "attn_gate"},
    {Part::kRecurrentB, "ssm_ba"},
    {Part::kMlpNorm, "post_attention_norm"},
};

}  // namespace

extern const Family kQwen3Next{
    .name = "qwen3_next",
    .title = "Qwen3-Next",
    .json = {.names = {{"Qwen3NextForCausalLM", "qwen3_next"}},
             .head_dim = 256,
             .width = 5'632,
             .max_positions = 32'768,
             .rope = ReadHybridRope,
             .read = ReadQwen3Next},
    .gguf = {.architecture = "qwen3next",
             .partial_rope = true,
             .experts = GgufForm::Experts::kRenormalised,
             .read = ReadQwen3NextGguf},
    .tensors = {.own = kQwen3NextTensors, .own_gguf = kQwen3NextGgufTensors},
    .decoder = {.head_norms = true},
};

extern const Family kQwen35{
    .name = "qwen3_5",
    .title = "Qwen3.5, Qwen3.6",
    .json = {.names = {{"Qwen3_5ForConditionalGeneration", "qwen3_5"},
                       {"Qwen3_5ForCausalLM", "qwen3_5_text"}},
             .head_dim = 256,
             .max_positions = 32'768,
             .rope = ReadHybridRope,
             .read = ReadDelta},
    .gguf = {.architecture = "qwen35", .partial_rope = true, .read = ReadQwen35Gguf},
    .tensors = {.own_gguf = kQwen35GgufTensors},
    .decoder = {.head_norms = true},
};

extern const Family kQwen35Moe{
    .name = "qwen3_5_moe",
    .title = "Qwen3.5-MoE, Qwen3.6-MoE",
    .json = {.names = {{"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"},
                       {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"}},
             .head_dim = 256,
             .width = 5'632,
             .max_positions = 32'768,
             .rope = ReadHybridRope,
             .read = ReadQwen35Moe},
    .gguf = {.architecture = "qwen35moe",
             .partial_rope = true,
             .experts = GgufForm::Experts::kRenormalised,
             .read = ReadQwen35Gguf},
    .tensors = {.own_gguf = kQwen35GgufTensors},
    .decoder = {.head_norms = true},
};

}  // namespace quire::model
