// Granite 3 and 4 (dense): Llama with scales of its own for embeddings, scores, what blocks add,
// and logits.
#include "worker/model/family.h"

namespace quire::model {
namespace {

// Logits are divided by it.
void SetLogitScale(double divisor, load::ModelConfig& config) {
  config.logit_scale = divisor > 0.0 ? 1.0 / divisor : 0.0;
}

void ReadGranite(JsonReader& reader, load::ModelConfig& config) {
  config.embedding_scale = reader.Double("embedding_multiplier", 1.0);
  config.residual_scale = reader.Double("residual_multiplier", 1.0);
  config.attention_scale = reader.Double("attention_multiplier", 1.0);
  SetLogitScale(reader.Double("logits_scaling", 1.0), config);
}

void ReadGraniteGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  config.embedding_scale = reader.Double("embedding_scale", 1.0);
  config.residual_scale = reader.Double("residual_scale", 1.0);
  config.attention_scale = reader.Double("attention.scale", config.attention_scale);
  SetLogitScale(reader.Double("logit_scale", 1.0), config);
}

}  // namespace

extern const Family kGranite{
    .name = "granite",
    .title = "Granite 3, 4 (dense)",
    .json = {.names = {{"GraniteForCausalLM", "granite"}},
             .attention_bias = true,
             .mlp_bias = true,
             .read = ReadGranite},
    .gguf = {.architecture = "granite", .interleaved_rope = true, .read = ReadGraniteGguf},
};

}  // namespace quire::model
