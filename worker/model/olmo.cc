// OLMo 2 and OLMo 3: no norms before the blocks but one of each block's result, and norms over all
// heads of q and of k together. In OLMo 3 three layers of four have a window, and only the others
// have a scaled rope. OLMoE: Llama's layers with the same norms of q and k, and experts.
#include "worker/model/family.h"

namespace quire::model {
namespace {

constexpr int kOlmo3Pattern = 4;

bool SlidesInOlmo3(int layer) { return (layer + 1) % kOlmo3Pattern != 0; }

// A scaling at the top level belongs to full layers.
void ReadOlmo3Rope(JsonReader& reader, load::ModelConfig& config) {
  config.rope.theta = config.sliding_rope.theta = reader.Double("rope_theta", 500'000.0);
  ReadRopesByLayerType(reader, config);
}

void ReadOlmo3(JsonReader& reader, load::ModelConfig& config) {
  ReadWindows(reader, config, reader.Int("sliding_window", 4'096), SlidesInOlmo3);
}

// Files of OLMo 3 have a window.
void ReadOlmo2Gguf(GgufReader& reader, load::ModelConfig& config) {
  const int window = ClampCount(reader.Int("attention.sliding_window", 0));
  for (int i = 0; i < config.layers; ++i)
    config.layer_windows.push_back(SlidesInOlmo3(i) ? window : 0);
  config.sliding_rope = load::RopeConfig{};
  config.sliding_rope.theta = config.rope.theta;
}

void ReadOlmoe(JsonReader& reader, load::ModelConfig& config) {
  if (reader.Has("clip_qkv")) reader.Fail("clip_qkv is not served, only null is");
  ReadExperts(reader, config, {.width = "intermediate_size"});
}

constexpr TensorName kOlmo2Tensors[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
};

constexpr DecoderForm kOlmo2Form = {.head_norms = true,
                                    .head_norm = kernels::HeadNorm::kWhole,
                                    .pre_norms = false,
                                    .post_norms = true,
                                    .sliding_rope = true};

}  // namespace

extern const Family kOlmo2{
    .name = "olmo2",
    .title = "OLMo 2",
    .json = {.names = {{"Olmo2ForCausalLM", "olmo2"}}, .attention_bias = true},
    .gguf = {.architecture = "olmo2", .read = ReadOlmo2Gguf},
    .tensors = {.own = kOlmo2Tensors},
    .decoder = kOlmo2Form,
};

extern const Family kOlmo3{
    .name = "olmo3",
    .title = "OLMo 3",
    .json = {.names = {{"Olmo3ForCausalLM", "olmo3"}},
             .attention_bias = true,
             .rope = ReadOlmo3Rope,
             .read = ReadOlmo3},
    .gguf = {.written_as = "olmo2"},
    .tensors = {.own = kOlmo2Tensors},
    .decoder = kOlmo2Form,
};

extern const Family kOlmoe{
    .name = "olmoe",
    .title = "OLMoE",
    .json = {.names = {{"OlmoeForCausalLM", "olmoe"}},
             .max_positions = 4'096,
             .attention_bias = true,
             .read = ReadOlmoe},
    .gguf = {.architecture = "olmoe", .experts = GgufForm::Experts::kPlain},
    .decoder = {.head_norms = true, .head_norm = kernels::HeadNorm::kWhole},
};

}  // namespace quire::model
