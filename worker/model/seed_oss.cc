// Seed-OSS: Llama with biases on q, k and v.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadSeedOss(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = reader.Bool("attention_bias", true);
  config.output_bias = reader.Bool("attention_out_bias", false);
}

constexpr TensorName kSeedOssGgufTensors[] = {{Part::kMlpNorm, "post_attention_norm"}};

}  // namespace

extern const Family kSeedOss{
    .name = "seed_oss",
    .title = "Seed-OSS",
    .json = {.names = {{"SeedOssForCausalLM", "seed_oss"}},
             .head_dim = 128,
             .max_positions = 524'288,
             .mlp_bias = true,
             .read = ReadSeedOss},
    .gguf = {.architecture = "seed_oss"},
    .tensors = {.own_gguf = kSeedOssGgufTensors},
};

}  // namespace quire::model
