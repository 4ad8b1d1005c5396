// Mistral: Llama with every layer attending to a sliding window only, where the configuration has
// one.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadMistral(JsonReader& reader, load::ModelConfig& config) {
  // Absent means the family's default, null means none.
  const int64_t window =
      reader.Int("sliding_window", reader.Mentions("sliding_window") ? 0 : 4'096);
  ReadWindows(reader, config, window, [window](int) { return window > 0; });
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

}  // namespace quire::model
