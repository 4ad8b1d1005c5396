// DeepSeek-V2 and V2-Lite, and DeepSeek-V3, V3.1 and R1, which Kimi K2 and GLM-4.7-Flash compute
// like: multi-head latent attention, and experts after the first layers.
#include <string_view>
#include <vector>

#include "worker/model/family.h"
#include "worker/model/latent_attention.h"
#include "worker/model/routed_experts.h"

namespace quire::model {
namespace {

constexpr RoutedForm kV2Routing = {
    .scoring = "softmax", .method = "greedy", .renormalise = false, .shared = 2, .dense = 0};
constexpr RoutedForm kV3Routing = {.scale = 2.5, .dense = 3};
constexpr RoutedForm kLiteRouting = {.scale = 1.8};

void ReadV2(JsonReader& reader, load::ModelConfig& config) {
  ReadLatents(reader, config);
  ReadRoutedExperts(reader, config, kV2Routing);
  config.latent.pairs = true;  // no key says otherwise
  if (config.experts.rule.renormalise) {
    reader.Fail(
        "norm_topk_prob is true, which implementations of this family compute in different ways; "
        "served is false");
  }
}

void ReadV3(JsonReader& reader, load::ModelConfig& config) {
  ReadLatents(reader, config);
  ReadRoutedExperts(reader, config, kV3Routing);
}

// Layers with experts may be listed.
void ReadGlmLite(JsonReader& reader, load::ModelConfig& config) {
  ReadLatents(reader, config);
  ReadRoutedExperts(reader, config, kLiteRouting);
  const json::Array* types = reader.ArrayAt("mlp_layer_types");
  if (types == nullptr) return;
  std::vector<bool> layers;
  for (const json::Value& type : *types) {
    const absl::StatusOr<std::string_view> name = json::AsString(type, "mlp_layer_types");
    if (!name.ok() || (*name != "sparse" && *name != "dense")) {
      return reader.Fail("mlp_layer_types may hold \"sparse\" and \"dense\" only");
    }
    layers.push_back(*name == "sparse");
  }
  config.experts.layers = layers;  // CheckModelConfig counts them
}

void ReadDeepSeekGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  ReadLatentsGguf(reader, config);
}

constexpr TensorName kDeepSeekTensors[] = {
    {Part::kSharedGate, "mlp.shared_experts.gate_proj"},
    {Part::kSharedUp, "mlp.shared_experts.up_proj"},
    {Part::kSharedDown, "mlp.shared_experts.down_proj"},
};

}  // namespace

extern const Family kDeepSeekV2{
    .name = "deepseek_v2",
    .title = "DeepSeek-V2, V2-Lite",
    .json = {.names = {{"DeepseekV2ForCausalLM", "deepseek_v2"}}, .read = ReadV2},
    .gguf = {.written_as = "deepseek2"},
    .tensors = {.own = kDeepSeekTensors},
};

extern const Family kDeepSeekV3{
    .name = "deepseek_v3",
    .title = "DeepSeek-V3, V3.1, R1, Kimi K2",
    .json = {.names = {{"DeepseekV3ForCausalLM", "deepseek_v3"}, {"", "kimi_k2"}},
             .max_positions = 4'096,
             .read = ReadV3},
    .gguf = {.architecture = "deepseek2",
             .splitting = {"deepseek-llm"},
             .latents = true,
             .experts = GgufForm::Experts::kRouted,
             .read = ReadDeepSeekGguf},
    .tensors = {.own = kDeepSeekTensors},
};

extern const Family kGlm4MoeLite{
    .name = "glm4_moe_lite",
    .title = "GLM-4.7-Flash",
    .json = {.names = {{"Glm4MoeLiteForCausalLM", "glm4_moe_lite"}},
             .max_positions = 202'752,
             .read = ReadGlmLite},
    .gguf = {.written_as = "deepseek2"},
    .tensors = {.own = kDeepSeekTensors},
};

}  // namespace quire::model
