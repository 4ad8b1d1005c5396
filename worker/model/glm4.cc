// GLM-4 (0414): Llama with a norm of each block's result, biases on q, k and v, half of each head
// rotated in neighbouring pairs, and gate and up in one tensor.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadGlm4Rope(JsonReader& reader, load::ModelConfig& config) {
  ReadPartialRope(reader, config, 0.5);
}

void ReadGlm4(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = reader.Bool("attention_bias", true);
}

constexpr TensorName kGlm4Tensors[] = {
    {Part::kPostAttentionNorm, "post_self_attn_layernorm"},
    {Part::kPostMlpNorm, "post_mlp_layernorm"},
    {Part::kGate, "mlp.gate_up_proj"},
    {Part::kUp, "mlp.gate_up_proj"},
};
constexpr TensorName kGlm4GgufTensors[] = {{Part::kGate, "ffn_up"}};

// GLM-4 9B as first published, without norms of what blocks return.
constexpr TensorName kGlmTensors[] = {{Part::kGate, "mlp.gate_up_proj"},
                                      {Part::kUp, "mlp.gate_up_proj"}};
// Files of the first checkpoints have q, k and v in one tensor, those of `transformers`' do not.
constexpr TensorName kGlmGgufTensors[] = {{Part::kQuery, "attn_qkv"}, {Part::kQuery, "attn_q"},
                                          {Part::kKey, "attn_qkv"},   {Part::kKey, "attn_k"},
                                          {Part::kValue, "attn_qkv"}, {Part::kValue, "attn_v"},
                                          {Part::kGate, "ffn_up"}};

void ReadGlmGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  config.qkv_bias =
      reader.HasTensor("blk.0.attn_qkv.bias") || reader.HasTensor("blk.0.attn_q.bias");
}

}  // namespace

extern const Family kGlm{
    .name = "glm",
    .title = "GLM-4 (9B)",
    .json = {.names = {{"GlmForCausalLM", "glm"}},
             .kv_heads = 2,
             .head_dim = 128,
             .max_positions = 131'072,
             .interleaved_rope = true,
             .rope = ReadGlm4Rope,
             .read = ReadGlm4},
    .gguf = {.architecture = "chatglm",
             .interleaved_rope = true,
             .partial_rope = true,
             .read = ReadGlmGguf},
    .tensors = {.own = kGlmTensors, .own_gguf = kGlmGgufTensors},
};

extern const Family kGlm4{
    .name = "glm4",
    .title = "GLM-4 (0414)",
    .json = {.names = {{"Glm4ForCausalLM", "glm4"}},
             .kv_heads = 2,
             .head_dim = 128,
             .max_positions = 131'072,
             .interleaved_rope = true,
             .rope = ReadGlm4Rope,
             .read = ReadGlm4},
    .gguf = {.architecture = "glm4", .interleaved_rope = true, .partial_rope = true},
    .tensors = {.own = kGlm4Tensors, .own_gguf = kGlm4GgufTensors},
    .decoder = {.post_norms = true},
};

}  // namespace quire::model
