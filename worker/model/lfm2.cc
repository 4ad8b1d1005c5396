// LFM2 (Liquid): short gated convolutions between layers with grouped-query attention.
#include <algorithm>

#include "worker/model/family.h"

namespace quire::model {
namespace {

// The layers have two thirds of the width that files give, rounded up.
void AdjustWidth(JsonReader& reader, load::ModelConfig& config) {
  config.intermediate_size = static_cast<int>(reader.Int("block_ff_dim", config.intermediate_size));
  if (!reader.Bool("block_auto_adjust_ff_dim", true)) return;
  const double factor = reader.Double("block_ffn_dim_multiplier", 1.0);
  const int64_t multiple = reader.Int("block_multiple_of", 256);
  if (!(factor > 0.0 && factor <= 1024.0)) {
    return reader.Fail("block_ffn_dim_multiplier must be above 0 and at most 1024");
  }
  if (multiple < 1) return reader.Fail("block_multiple_of must be at least 1");
  const int64_t two_thirds = int64_t{2} * config.intermediate_size / 3;
  const auto scaled = static_cast<int64_t>(factor * static_cast<double>(two_thirds));
  config.intermediate_size =
      static_cast<int>(std::min((scaled + multiple - 1) / multiple * multiple, kAnyInt));
}

void ReadLfm2(JsonReader& reader, load::ModelConfig& config) {
  AdjustWidth(reader, config);
  config.tied_embeddings = reader.Bool("tie_embedding", config.tied_embeddings);
  config.recurrent.kind = load::RecurrentConfig::Kind::kShortConvolution;
  config.recurrent.taps = static_cast<int>(reader.Int("conv_L_cache", 3));
  config.recurrent.biases = reader.Bool("conv_bias", false);
  // Where neither list is there, all layers have attention.
  const json::Array* full = reader.ArrayAt("full_attn_idxs");
  ReadRecurrentLayers(reader, config, {"conv"}, [&](int layer) {
    if (full == nullptr) return false;
    return std::none_of(full->begin(), full->end(), [layer](const json::Value& value) {
      const auto index = json::AsInt(value, "full_attn_idxs");
      return index.ok() && *index == layer;
    });
  });
}

constexpr TensorName kLfm2Tensors[] = {
    {Part::kFinalNorm, "embedding_norm"},
    {Part::kAttentionNorm, "operator_norm"},
    {Part::kQueryNorm, "self_attn.q_layernorm"},
    {Part::kKeyNorm, "self_attn.k_layernorm"},
    {Part::kOutput, "self_attn.out_proj"},
    {Part::kRecurrentIn, "conv.in_proj"},
    {Part::kConvolution, "conv.conv"},
    {Part::kRecurrentOut, "conv.out_proj"},
    {Part::kMlpNorm, "ffn_norm"},
    {Part::kGate, "feed_forward.w1"},
    {Part::kUp, "feed_forward.w3"},
    {Part::kDown, "feed_forward.w2"},
};

constexpr TensorName kLfm2GgufTensors[] = {
    {Part::kFinalNorm, "token_embd_norm"},
    {Part::kRecurrentIn, "shortconv.in_proj"},
    {Part::kConvolution, "shortconv.conv"},
    {Part::kRecurrentOut, "shortconv.out_proj"},
};

// Layers without heads of keys and values are convolutions.
void ReadLfm2Gguf(GgufReader& reader, load::ModelConfig& config) {
  config.recurrent.kind = load::RecurrentConfig::Kind::kShortConvolution;
  config.recurrent.taps = ClampCount(reader.RequiredInt("shortconv.l_cache"));
  config.layer_windows = reader.LayersWithout("attention.head_count_kv", config.layers);
}

}  // namespace

extern const Family kLfm2{
    .name = "lfm2",
    .title = "LFM2",
    .json = {.names = {{"Lfm2ForCausalLM", "lfm2"}},
             .width = 12'288,
             .max_positions = 128'000,
             .tied_embeddings = true,
             .epsilon_key = "norm_eps",
             .rope =
                 [](JsonReader& reader, load::ModelConfig& config) {
                   config.rope.theta = 1'000'000.0;
                   ReadRope(reader, config);
                 },
             .read = ReadLfm2},
    .gguf = {.architecture = "lfm2", .recurrent = true, .read = ReadLfm2Gguf},
    .tensors = {.own = kLfm2Tensors, .own_gguf = kLfm2GgufTensors},
    .decoder = {.head_norms = true},
};

}  // namespace quire::model
