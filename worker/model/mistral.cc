// Mistral: Llama with every layer attending to a sliding window only, where the configuration has
// one. Ministral 3 also lets queries grow with their position (arXiv 2501.19399); checkpoints for
// images and text (Mistral Small 3.1 and later) hold either.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadWindowOfAll(JsonReader& reader, load::ModelConfig& config, int64_t otherwise) {
  // Absent means the family's default, null means none.
  const int64_t window =
      reader.Int("sliding_window", reader.Mentions("sliding_window") ? 0 : otherwise);
  ReadWindows(reader, config, window, [window](int) { return window > 0; });
}

void ReadMistral(JsonReader& reader, load::ModelConfig& config) {
  ReadWindowOfAll(reader, config, 4'096);
}

void SetGrowth(double rate, double original, load::ModelConfig& config) {
  if (rate == 0.0) return;
  config.query_growth.rate = static_cast<float>(rate);
  config.query_growth.interval = ClampCount(static_cast<int64_t>(original));
}

void ReadMistral3(JsonReader& reader, load::ModelConfig& config) {
  const bool older = reader.String("model_type", "ministral3") == "mistral";
  ReadWindowOfAll(reader, config, older ? 4'096 : 0);
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const json::Object* rope = reader.ObjectAt(key);
    if (rope == nullptr || older) continue;
    JsonReader nested(*rope, reader.path());
    SetGrowth(nested.Double("llama_4_scaling_beta", 0.0),
              nested.Double("original_max_position_embeddings", 0.0), config);
    if (!nested.status().ok()) reader.Fail("rope: " + StatusMessage(nested.status()));
  }
}

void ReadMistral3Gguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  SetGrowth(reader.Double("attention.temperature_scale", 0.0),
            reader.Double("rope.scaling.original_context_length", config.max_positions), config);
  const double scale_all = reader.Double("rope.scaling.yarn_log_multiplier", 0.0);
  if (scale_all != 0.0) {
    config.rope.attention_factor /= load::YarnMagnitude(config.rope.factor, scale_all);
    config.sliding_rope = config.rope;
  }
}

}  // namespace

extern const Family kMistral{
    .name = "mistral",
    .title = "Mistral",
    .json = {.names = {{"MistralForCausalLM", "mistral"}},
             .max_positions = 131'072,
             .read = ReadMistral},
    .gguf = {.written_as = "llama"},
};

extern const Family kMistral3{
    .name = "mistral3",
    .title = "Mistral Small 3, Ministral 3 (text)",
    .json = {.names = {{"Mistral3ForConditionalGeneration", "mistral3"},
                       {"Ministral3ForCausalLM", "ministral3"}},
             .max_positions = 131'072,
             .read = ReadMistral3},
    .gguf = {.architecture = "mistral3", .interleaved_rope = true, .read = ReadMistral3Gguf},
};

}  // namespace quire::model
