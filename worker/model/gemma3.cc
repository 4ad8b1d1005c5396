// Gemma 3 (text): scaled embeddings, norms on both sides of every block, q and k norms, and sliding
// layers with their own rope between full ones.
#include <cmath>

#include "worker/model/family.h"

namespace quire::model {
namespace {

// One rope for full layers, scaled, and one for sliding ones.
void ReadGemmaRope(JsonReader& reader, load::ModelConfig& config) {
  config.rope.theta = reader.Double("rope_theta", 1'000'000.0);
  config.sliding_rope.theta = reader.Double("rope_local_base_freq", 10'000.0);
  ReadRopesByLayerType(reader, config);
}

void ReadGemma3Json(JsonReader& reader, load::ModelConfig& config) {
  if (reader.Bool("use_bidirectional_attention", false)) {
    reader.Fail("use_bidirectional_attention is not served");
  }
  const double scalar = reader.Double("query_pre_attn_scalar", 256.0);
  config.attention_scale = scalar > 0.0 ? 1.0 / std::sqrt(scalar) : 0.0;
  config.attention_softcap = reader.Double("attn_logit_softcapping", 0.0);
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  config.norm_weight_offset = 1.0;
  const int64_t pattern =
      reader.Int("sliding_window_pattern", reader.Int("_sliding_window_pattern", 6));
  if (pattern < 1) reader.Fail("sliding_window_pattern must be at least 1");
  ReadWindows(reader, config, reader.Int("sliding_window", 4'096),
              [pattern](int i) { return pattern >= 1 && (i + 1) % pattern != 0; });
}

void ReadGemma3Gguf(GgufReader& reader, load::ModelConfig& config) {
  config.activation = load::ModelConfig::Activation::kGeluTanh;
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  config.sliding_rope = load::RopeConfig{};
  config.sliding_rope.theta = reader.Double("rope.freq_base_swa", 10'000.0);
  // The 27B model scales by the hidden size per head; GGUF files identify it by its depth.
  constexpr int kLayersOf27B = 62;
  if (config.layers == kLayersOf27B && config.heads > 0) {
    config.attention_scale =
        1.0 / std::sqrt(static_cast<double>(config.hidden_size) / config.heads);
  }
  const int64_t window = reader.Int("attention.sliding_window", 0);
  const int64_t pattern = reader.Int("attention.sliding_window_pattern", 6);
  if (pattern < 1) {
    reader.Fail("attention.sliding_window_pattern must be at least 1");
    return;
  }
  for (int i = 0; i < config.layers; ++i) {
    config.layer_windows.push_back((i + 1) % pattern != 0 ? ClampCount(window) : 0);
  }
}

constexpr TensorName kGemma3Tensors[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kMlpNorm, "pre_feedforward_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
};

}  // namespace

extern const Family kGemma3{
    .name = "gemma3",
    .title = "Gemma 3 (text)",
    .json = {.names = {{"Gemma3ForCausalLM", "gemma3_text"},
                       {"Gemma3ForConditionalGeneration", "gemma3"}},
             // Image-and-text checkpoints leave out what equals these.
             .vocab_size = 262'208,
             .heads = 8,
             .kv_heads = 4,
             .head_dim = 256,
             .max_positions = 131'072,
             .tied_embeddings = true,
             .activation_key = "hidden_activation",
             .activation = "gelu_pytorch_tanh",
             .attention_bias = true,
             .rope = ReadGemmaRope,
             .read = ReadGemma3Json},
    .gguf = {.architecture = "gemma3", .read = ReadGemma3Gguf},
    .tensors = {.own = kGemma3Tensors},
    .decoder = {.head_norms = true,
                .post_norms = true,
                .scaled_embeddings = true,
                .sliding_rope = true},
};

}  // namespace quire::model
