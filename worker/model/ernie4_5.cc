// ERNIE 4.5 (dense): Llama with rotation in neighbouring pairs, and one switch for all biases.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadErnie(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("use_bias", false);
}

}  // namespace

extern const Family kErnie45{
    .name = "ernie4_5",
    .title = "ERNIE 4.5 (dense)",
    .json = {.names = {{"Ernie4_5ForCausalLM", "ernie4_5"}},
             .head_dim = 128,
             .max_positions = 131'072,
             .tied_embeddings = true,
             .interleaved_rope = true,
             .read = ReadErnie},
    .gguf = {.architecture = "ernie4_5", .interleaved_rope = true},
};

}  // namespace quire::model
