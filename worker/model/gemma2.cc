// Gemma 2: scaled embeddings, norms on both sides of every block, capped scores and logits, and a
// window in every other layer, the first included.
#include <cmath>

#include "worker/model/family.h"

namespace quire::model {
namespace {

bool Slides(int layer) { return layer % 2 == 0; }

void ReadGemma2Json(JsonReader& reader, load::ModelConfig& config) {
  if (reader.Bool("use_bidirectional_attention", false)) {
    reader.Fail("use_bidirectional_attention is not served");
  }
  const double scalar = reader.Double("query_pre_attn_scalar", 256.0);
  config.attention_scale = scalar > 0.0 ? 1.0 / std::sqrt(scalar) : 0.0;
  // null means none.
  const auto cap = [&reader](std::string_view key, double otherwise) {
    return reader.Double(key, reader.Mentions(key) ? 0.0 : otherwise);
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0);
  config.logit_softcap = cap("final_logit_softcapping", 30.0);
  config.norm_weight_offset = 1.0;
  ReadWindows(reader, config, reader.Int("sliding_window", 4'096), Slides);
}

void ReadGemma2Gguf(GgufReader& reader, load::ModelConfig& config) {
  config.activation = load::ModelConfig::Activation::kGeluTanh;
  config.attention_softcap = reader.Double("attn_logit_softcapping", 50.0);
  config.logit_softcap = reader.Double("final_logit_softcapping", 30.0);
  // The 27B model scales by the hidden size per head; GGUF files identify it by its depth.
  constexpr int kLayersOf27B = 46;
  if (config.layers == kLayersOf27B && config.heads > 0) {
    config.attention_scale =
        1.0 / std::sqrt(static_cast<double>(config.hidden_size) / config.heads);
  }
  const int64_t window = reader.Int("attention.sliding_window", 4'096);
  for (int i = 0; i < config.layers; ++i) {
    config.layer_windows.push_back(Slides(i) ? ClampCount(window) : 0);
  }
}

constexpr TensorName kGemma2Tensors[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kMlpNorm, "pre_feedforward_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
};

}  // namespace

extern const Family kGemma2{
    .name = "gemma2",
    .title = "Gemma 2",
    .json = {.names = {{"Gemma2ForCausalLM", "gemma2"}},
             .head_dim = 256,
             .max_positions = 8'192,
             .tied_embeddings = true,
             .activation_key = "hidden_activation",
             .activation = "gelu_pytorch_tanh",
             .attention_bias = true,
             .read = ReadGemma2Json},
    .gguf = {.architecture = "gemma2", .read = ReadGemma2Gguf},
    .tensors = {.own = kGemma2Tensors},
    .decoder = {.post_norms = true, .scaled_embeddings = true},
};

}  // namespace quire::model
