// GLM-4.5, 4.6 and 4.7 (GLM-4-MoE): Llama's attention with biases on q, k and v, norms of q and k
// where the file has them, half of each head rotated; experts as DeepSeek-V3's after the first
// layers.
#include "worker/model/family.h"
#include "worker/model/routed_experts.h"

namespace quire::model {
namespace {

void ReadGlm4MoeRope(JsonReader& reader, load::ModelConfig& config) {
  ReadPartialRope(reader, config, 0.5);
}

void ReadGlm4Moe(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = reader.Bool("attention_bias", false);
  config.head_norms = reader.Bool("use_qk_norm", false);
  ReadRoutedExperts(reader, config, {});
}

void ReadGlm4MoeGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  // The only scores that its models have; older files do not say so.
  if (!reader.Has("expert_gating_func")) {
    config.experts.rule.scores = kernels::RoutingRule::Scores::kSigmoid;
  }
}

constexpr TensorName kGlm4MoeTensors[] = {
    {Part::kSharedGate, "mlp.shared_experts.gate_proj"},
    {Part::kSharedUp, "mlp.shared_experts.up_proj"},
    {Part::kSharedDown, "mlp.shared_experts.down_proj"},
};
constexpr TensorName kGlm4MoeGgufTensors[] = {{Part::kMlpNorm, "post_attention_norm"}};

}  // namespace

extern const Family kGlm4Moe{
    .name = "glm4_moe",
    .title = "GLM-4.5 to 4.7 (GLM-4-MoE)",
    .json = {.names = {{"Glm4MoeForCausalLM", "glm4_moe"}},
             .max_positions = 131'072,
             .rope = ReadGlm4MoeRope,
             .read = ReadGlm4Moe},
    .gguf = {.architecture = "glm4moe",
             .splitting = {"glm4"},
             .partial_rope = true,
             .optional_head_norms = true,
             .experts = GgufForm::Experts::kRouted,
             .read = ReadGlm4MoeGguf},
    .tensors = {.own = kGlm4MoeTensors, .own_gguf = kGlm4MoeGgufTensors},
};

}  // namespace quire::model
