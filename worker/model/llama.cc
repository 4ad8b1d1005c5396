// Llama 2 and 3: pre-norm layers, rotary positions (scaled in 3.1 and later), gated SiLU MLP.
#include "worker/model/family.h"

namespace quire::model {

extern const Family kLlama{
    .name = "llama",
    .title = "Llama (2, 3)",
    .json = {.names = {{"LlamaForCausalLM", "llama"}}, .attention_bias = true, .mlp_bias = true},
    .gguf = {.architecture = "llama",
             .splitting = {"llama-bpe", /*tokens=*/128'256},  // of Llama 3
             .interleaved_rope = true,
             .experts = GgufForm::Experts::kRenormalised},  // Mixtral
};

}  // namespace quire::model
