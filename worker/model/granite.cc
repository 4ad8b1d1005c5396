// Granite 3 and 4 (dense, and 3's mixtures): Llama with scales of its own for embeddings, scores,
// what blocks add, and logits.
#include "worker/model/granite.h"

#include "worker/model/family.h"

namespace quire::model {
namespace {

// Logits are divided by it.
void SetLogitScale(double divisor, load::ModelConfig& config) {
  config.logit_scale = divisor > 0.0 ? 1.0 / divisor : 0.0;
}

void ReadGraniteMoe(JsonReader& reader, load::ModelConfig& config) {
  ReadGraniteScales(reader, config);
  ReadExperts(reader, config,
              {.count = "num_local_experts", .width = "intermediate_size", .renormalise = true});
  ScaleExperts(config);
}

void ReadGraniteGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  ReadGraniteScales(reader, config);
}

void ReadGraniteMoeGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadGraniteGguf(reader, config);
  if (config.experts.shared_width > 0) {
    reader.Fail("expert_shared_feed_forward_length: shared experts are not served");
  }
  ScaleExperts(config);
}

constexpr TensorName kGraniteMoeTensors[] = {
    {Part::kRouter, "block_sparse_moe.router.layer"},
    {Part::kExpertGate, "block_sparse_moe.input_linear"},
    {Part::kExpertUp, "block_sparse_moe.input_linear"},
    {Part::kExpertDown, "block_sparse_moe.output_linear"},
};

}  // namespace

void ReadGraniteScales(JsonReader& reader, load::ModelConfig& config) {
  config.embedding_scale = reader.Double("embedding_multiplier", 1.0);
  config.residual_scale = reader.Double("residual_multiplier", 1.0);
  config.attention_scale = reader.Double("attention_multiplier", 1.0);
  SetLogitScale(reader.Double("logits_scaling", 1.0), config);
}

void ReadGraniteScales(GgufReader& reader, load::ModelConfig& config) {
  config.embedding_scale = reader.Double("embedding_scale", 1.0);
  config.residual_scale = reader.Double("residual_scale", 1.0);
  config.attention_scale = reader.Double("attention.scale", config.attention_scale);
  SetLogitScale(reader.Double("logit_scale", 1.0), config);
}

void ScaleExperts(load::ModelConfig& config) {
  config.experts.rule.renormalise = true;
  config.experts.rule.scale = static_cast<float>(config.residual_scale);
}

extern const Family kGraniteMoe{
    .name = "granitemoe",
    .title = "Granite 3 (mixtures)",
    .json = {.names = {{"GraniteMoeForCausalLM", "granitemoe"}},
             .attention_bias = true,
             .read = ReadGraniteMoe},
    .gguf = {.architecture = "granitemoe",
             .interleaved_rope = true,
             .experts = GgufForm::Experts::kRenormalised,
             .read = ReadGraniteMoeGguf},
    .tensors = {.own = kGraniteMoeTensors, .experts_stacked = true},
};

extern const Family kGranite{
    .name = "granite",
    .title = "Granite 3, 4 (dense)",
    .json = {.names = {{"GraniteForCausalLM", "granite"}},
             .attention_bias = true,
             .mlp_bias = true,
             .read = ReadGraniteScales},
    .gguf = {.architecture = "granite", .interleaved_rope = true, .read = ReadGraniteGguf},
};

}  // namespace quire::model
