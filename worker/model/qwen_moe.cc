// Qwen2-MoE (Qwen1.5-MoE, Qwen2-57B-A14B): Qwen2 with experts and a shared one in most layers.
// Qwen3-MoE: Qwen3 with experts, without a shared one.
#include "worker/model/family.h"

namespace quire::model {
namespace {

int64_t WindowOf(JsonReader& reader) {
  return reader.Bool("use_sliding_window", false) ? reader.Int("sliding_window", 4'096) : 0;
}

void ReadQwen3Moe(JsonReader& reader, load::ModelConfig& config) {
  ReadExperts(reader, config, {});
  const int64_t window = WindowOf(reader);
  ReadWindows(reader, config, window, [window](int) { return window > 0; });
}

void ReadQwen2Moe(JsonReader& reader, load::ModelConfig& config) {
  ReadExperts(reader, config, {});
  // Unlike in Qwen2, every other of the first layers slides.
  const int64_t window = WindowOf(reader);
  const int64_t end = reader.Int("max_window_layers", 28);
  ReadWindows(reader, config, window, [=](int i) { return window > 0 && i % 2 == 0 && i < end; });
  config.experts.shared_width =
      static_cast<int>(reader.RequiredInt("shared_expert_intermediate_size"));
  config.qkv_bias = reader.Bool("qkv_bias", true);
}

void ReadQwen2MoeGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  // Older files have one width: the shared expert has it, and so have all others that a token uses,
  // together.
  load::ExpertConfig& experts = config.experts;
  if (experts.shared_width == 0) experts.shared_width = config.intermediate_size;
  if (!reader.Has("expert_feed_forward_length") && experts.rule.chosen > 0) {
    experts.width = config.intermediate_size / experts.rule.chosen;
  }
}

}  // namespace

extern const Family kQwen2Moe{
    .name = "qwen2_moe",
    .title = "Qwen2-MoE",
    .json = {.names = {{"Qwen2MoeForCausalLM", "qwen2_moe"}},
             .max_positions = 32'768,
             .read = ReadQwen2Moe},
    .gguf = {.architecture = "qwen2moe",
             .splitting = {"qwen2"},
             .experts = GgufForm::Experts::kPlain,
             .read = ReadQwen2MoeGguf},
};

extern const Family kQwen3Moe{
    .name = "qwen3_moe",
    .title = "Qwen3-MoE",
    .json = {.names = {{"Qwen3MoeForCausalLM", "qwen3_moe"}},
             .head_dim = 128,
             .max_positions = 32'768,
             .attention_bias = true,
             .read = ReadQwen3Moe},
    .gguf = {.architecture = "qwen3moe",
             .splitting = {"qwen2"},
             .experts = GgufForm::Experts::kRenormalised},
    .decoder = {.head_norms = true},
};

}  // namespace quire::model
