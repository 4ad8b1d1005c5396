// SmolLM3: Llama without rotation in every fourth layer (NoPE, arXiv 2305.19466).
#include "worker/model/family.h"

namespace quire::model {
namespace {

constexpr int kInterval = 4;

void ReadSmolLm3(JsonReader& reader, load::ModelConfig& config) {
  const int64_t window =
      reader.Bool("use_sliding_window", false) ? reader.Int("sliding_window", 0) : 0;
  ReadWindows(reader, config, window, [](int) { return false; });
  const int64_t interval = reader.Int("no_rope_layer_interval", kInterval);
  if (interval < 1) reader.Fail("no_rope_layer_interval must be at least 1");
  // In spite of its name, an entry says whether the layer turns.
  const json::Array* turns = reader.ArrayAt("no_rope_layers");
  if (turns != nullptr && turns->size() != static_cast<size_t>(config.layers)) {
    reader.Fail(absl::StrCat("no_rope_layers has ", turns->size(), " entries for ", config.layers,
                             " layers"));
  }
  if (!reader.status().ok()) return;
  for (int i = 0; i < static_cast<int>(config.layer_windows.size()); ++i) {
    bool without = (i + 1) % interval == 0;
    if (turns != nullptr) {
      const auto entry = json::AsInt((*turns)[static_cast<size_t>(i)], "no_rope_layers");
      if (!entry.ok() || *entry < 0 || *entry > 1)
        return reader.Fail("no_rope_layers may hold 0 and 1");
      without = *entry == 0;
    }
    config.layers_without_rope.push_back(without);
  }
}

void ReadSmolLm3Gguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  for (int i = 0; i < config.layers; ++i) {
    config.layers_without_rope.push_back((i + 1) % kInterval == 0);
  }
}

}  // namespace

extern const Family kSmolLm3{
    .name = "smollm3",
    .title = "SmolLM3",
    .json = {.names = {{"SmolLM3ForCausalLM", "smollm3"}},
             .max_positions = 32'768,
             .tied_embeddings = true,
             .attention_bias = true,
             .mlp_bias = true,
             .read = ReadSmolLm3},
    .gguf = {.architecture = "smollm3", .interleaved_rope = true, .read = ReadSmolLm3Gguf},
};

}  // namespace quire::model
