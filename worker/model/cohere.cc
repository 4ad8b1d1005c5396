// Command-R (cohere) and Command-R7B, Command A (cohere2): LayerNorm without biases, one norm for
// attention and mlp side by side, rotation in neighbouring pairs, scaled logits. Command-R+ has
// layer norms of each head of q and k. In cohere2 three layers of four have a window and turn, the
// fourth has neither.
#include "worker/model/family.h"

namespace quire::model {
namespace {

constexpr int kPattern = 4;

void ReadCohere(JsonReader& reader, load::ModelConfig& config) {
  config.head_norms = reader.Bool("use_qk_norm", false);  // Command-R+
  config.layer_norm = true;
  config.norm_bias = false;
  config.logit_scale = reader.Double("logit_scale", 0.0625);
}

// What has no window does not turn.
void StillFullLayers(load::ModelConfig& config) {
  for (const int window : config.layer_windows) config.layers_without_rope.push_back(window == 0);
}

void ReadCohere2(JsonReader& reader, load::ModelConfig& config) {
  ReadCohere(reader, config);
  if (config.head_norms) reader.Fail("use_qk_norm is not served");
  const int64_t pattern =
      reader.Int("sliding_window_pattern", reader.Int("_sliding_window_pattern", kPattern));
  if (pattern < 1) reader.Fail("sliding_window_pattern must be at least 1");
  ReadWindows(reader, config, reader.Int("sliding_window", 4'096),
              [pattern](int i) { return pattern >= 1 && (i + 1) % pattern != 0; });
  StillFullLayers(config);
}

void ReadCohereGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  config.head_norms = reader.HasTensor("blk.0.attn_q_norm.weight");
  config.logit_scale = reader.Double("logit_scale", 0.0625);
}

void ReadCohere2Gguf(GgufReader& reader, load::ModelConfig& config) {
  config.logit_scale = reader.Double("logit_scale", 0.0625);
  const int window = ClampCount(reader.RequiredInt("attention.sliding_window"));
  for (int i = 0; i < config.layers; ++i) {
    config.layer_windows.push_back((i + 1) % kPattern != 0 ? window : 0);
  }
  StillFullLayers(config);
}

}  // namespace

extern const Family kCohere{
    .name = "cohere",
    .title = "Command-R (Cohere)",
    .json = {.names = {{"CohereForCausalLM", "cohere"}},
             .max_positions = 8'192,
             .tied_embeddings = true,
             .epsilon_key = "layer_norm_eps",
             .attention_bias = true,
             .interleaved_rope = true,
             .read = ReadCohere},
    .gguf = {.architecture = "command-r",
             .interleaved_rope = true,
             .layer_norm = true,
             .read = ReadCohereGguf},
    .decoder = {.head_norm = kernels::HeadNorm::kLayer, .parallel = true},
};

extern const Family kCohere2{
    .name = "cohere2",
    .title = "Command-R7B, Command A (Cohere 2)",
    .json = {.names = {{"Cohere2ForCausalLM", "cohere2"}},
             .max_positions = 8'192,
             .tied_embeddings = true,
             .epsilon_key = "layer_norm_eps",
             .attention_bias = true,
             .interleaved_rope = true,
             .read = ReadCohere2},
    .gguf = {.architecture = "cohere2",
             .interleaved_rope = true,
             .layer_norm = true,
             .read = ReadCohere2Gguf},
    .decoder = {.parallel = true},
};

}  // namespace quire::model
