// Qwen2 and Qwen2.5: Llama with biases on q, k and v; later layers may slide. Qwen3 has an RMS norm
// on each q and k head before the rotation in their place.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadQwen(JsonReader& reader, load::ModelConfig& config) {
  const bool may_slide = reader.Bool("use_sliding_window", false);
  const int64_t window = may_slide ? reader.Int("sliding_window", 4'096) : 0;
  const int64_t first = reader.Int("max_window_layers", 28);
  ReadWindows(reader, config, window, [=](int i) { return window > 0 && i >= first; });
}

}  // namespace

extern const Family kQwen2{
    .name = "qwen2",
    .title = "Qwen2, Qwen2.5",
    .json = {.names = {{"Qwen2ForCausalLM", "qwen2"}},
             .max_positions = 32'768,
             .qkv_bias = true,
             .read = ReadQwen},
    .gguf = {.architecture = "qwen2", .splitting = {"qwen2"}},
};

extern const Family kQwen3{
    .name = "qwen3",
    .title = "Qwen3",
    .json = {.names = {{"Qwen3ForCausalLM", "qwen3"}},
             .head_dim = 128,
             .max_positions = 32'768,
             .attention_bias = true,
             .read = ReadQwen},
    .gguf = {.architecture = "qwen3", .splitting = {"qwen2"}},
    .decoder = {.head_norms = true},
};

}  // namespace quire::model
