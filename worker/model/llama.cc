// Llama 2 and 3: pre-norm layers, rotary positions (scaled in 3.1 and later), gated SiLU MLP.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadLlama(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, config);
  ReadFullAttention(reader, config);
}

}  // namespace

extern const Family kLlama{
    .name = "llama",
    .title = "Llama (2, 3)",
    .json = {.names = {{"LlamaForCausalLM", "llama"}}, .read = ReadLlama},
    .gguf = {.architecture = "llama",
             .splitting = {"llama-bpe", /*tokens=*/128'256},  // of Llama 3
             .interleaved_rope = true},
};

}  // namespace quire::model
