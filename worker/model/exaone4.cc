// EXAONE 4: norms of each block's result alone and of each head of q and k. Where the model has a
// window, three layers of four have it and turn, the others have neither.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadExaone4(JsonReader& reader, load::ModelConfig& config) {
  const int64_t window =
      reader.Int("sliding_window", reader.Mentions("sliding_window") ? 0 : 4'096);
  if (window == 0) return;
  int64_t pattern = 4;
  if (const json::Value* value = json::Find(reader.object(), "sliding_window_pattern");
      value != nullptr && value->is_string()) {
    if (reader.String("sliding_window_pattern", "") != "LLLG" && !reader.Has("layer_types")) {
      reader.Fail("sliding_window_pattern may be a number or \"LLLG\"");
    }
  } else {
    pattern = reader.Int("sliding_window_pattern", pattern);
  }
  if (pattern < 1) return reader.Fail("sliding_window_pattern must be at least 1");
  ReadWindows(reader, config, window, [pattern](int i) { return (i + 1) % pattern != 0; });
  for (const int own : config.layer_windows) config.layers_without_rope.push_back(own == 0);
}

constexpr TensorName kExaone4Tensors[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
};

}  // namespace

extern const Family kExaone4{
    .name = "exaone4",
    .title = "EXAONE 4",
    .json = {.names = {{"Exaone4ForCausalLM", "exaone4"}}, .kv_heads = 32, .read = ReadExaone4},
    .tensors = {.own = kExaone4Tensors},
    .decoder = {.head_norms = true, .pre_norms = false, .post_norms = true},
};

}  // namespace quire::model
