// gpt-oss: every other layer has a window, the first included; each head has an attention sink;
// experts with biases and a clamped gate in every layer.
#include "worker/model/family.h"

namespace quire::model {
namespace {

bool HasWindow(int layer) { return layer % 2 == 0; }

void SetForm(load::ModelConfig& config) {
  config.activation = load::ModelConfig::Activation::kClamped;
  config.experts.biases = true;
}

void ReadGptOss(JsonReader& reader, load::ModelConfig& config) {
  ReadExperts(reader, config,
              {.count = "num_local_experts", .width = "intermediate_size", .renormalise = true});
  config.experts.rule.renormalise = true;  // a softmax of the chosen alone
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", true);
  const double limit = reader.Double("swiglu_limit", 7.0);
  const double alpha = reader.Double("swiglu_alpha", 1.702);
  if (limit != 7.0) reader.Fail(absl::StrCat("swiglu_limit is ", limit, ", served is 7"));
  if (alpha != 1.702) reader.Fail(absl::StrCat("swiglu_alpha is ", alpha, ", served is 1.702"));
  SetForm(config);
  ReadWindows(reader, config, reader.Int("sliding_window", 128), HasWindow);
}

void ReadGptOssGguf(GgufReader& reader, load::ModelConfig& config) {
  SetForm(config);
  config.rope.truncate = config.sliding_rope.truncate = false;  // no key says so
  const int window = ClampCount(reader.RequiredInt("attention.sliding_window"));
  for (int i = 0; i < config.layers; ++i) config.layer_windows.push_back(HasWindow(i) ? window : 0);
}

constexpr TensorName kGptOssTensors[] = {
    {Part::kSinks, "self_attn.sinks$"},
    {Part::kRouter, "mlp.router"},
    {Part::kExpertGate, "mlp.experts.gate_up_proj$"},
    {Part::kExpertUp, "mlp.experts.gate_up_proj$"},
    {Part::kExpertDown, "mlp.experts.down_proj$"},
};
constexpr TensorName kGptOssGgufTensors[] = {{Part::kMlpNorm, "post_attention_norm"}};

}  // namespace

extern const Family kGptOss{
    .name = "gpt_oss",
    .title = "gpt-oss",
    .json = {.names = {{"GptOssForCausalLM", "gpt_oss"}},
             .kv_heads = 8,
             .head_dim = 64,
             .max_positions = 131'072,
             .read = ReadGptOss},
    .gguf = {.architecture = "gpt-oss",
             .splitting = {"gpt-4o"},
             .experts = GgufForm::Experts::kRenormalised,
             .read = ReadGptOssGguf},
    .tensors = {.own = kGptOssTensors,
                .own_gguf = kGptOssGgufTensors,
                .experts_inputs_first = true},
    .decoder = {.sinks = true},
};

}  // namespace quire::model
