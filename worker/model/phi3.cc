// Phi-3 and Phi-4: Llama with q, k and v in one tensor and gate and up in another; a part of each
// head may stay unturned, and long contexts have factors for each frequency (LongRoPE).
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadPhi3Rope(JsonReader& reader, load::ModelConfig& config) {
  ReadPartialRope(reader, config, 1.0);
}

void ReadPhi3(JsonReader& reader, load::ModelConfig& config) {
  const int64_t window = reader.Int("sliding_window", 0);
  ReadWindows(reader, config, window, [window](int) { return window > 0; });
}

void ReadPhi3Gguf(GgufReader& reader, load::ModelConfig& config) {
  ReadWindow(reader, config);
  load::RopeConfig& rope = config.rope;
  rope.long_factors = reader.Tensor("rope_factors_long.weight");
  rope.short_factors = reader.Tensor("rope_factors_short.weight");
  if (rope.long_factors.empty() && rope.short_factors.empty()) return;
  rope.scaling = load::RopeConfig::Scaling::kLongRope;
  rope.original_context =
      static_cast<double>(reader.RequiredInt("rope.scaling.original_context_length"));
  rope.attention_factor = reader.Double("rope.scaling.attn_factor", 1.0);
  config.sliding_rope = rope;
}

constexpr TensorName kPhi3Tensors[] = {
    {Part::kQuery, "self_attn.qkv_proj"}, {Part::kKey, "self_attn.qkv_proj"},
    {Part::kValue, "self_attn.qkv_proj"}, {Part::kGate, "mlp.gate_up_proj"},
    {Part::kUp, "mlp.gate_up_proj"},
};
constexpr TensorName kPhi3GgufTensors[] = {
    {Part::kQuery, "attn_qkv"},
    {Part::kKey, "attn_qkv"},
    {Part::kValue, "attn_qkv"},
    {Part::kGate, "ffn_up"},
};

}  // namespace

extern const Family kPhi3{
    .name = "phi3",
    .title = "Phi-3, Phi-4",
    .json = {.names = {{"Phi3ForCausalLM", "phi3"}},
             .max_positions = 4'096,
             .rope = ReadPhi3Rope,
             .read = ReadPhi3},
    .gguf = {.architecture = "phi3", .partial_rope = true, .read = ReadPhi3Gguf},
    .tensors = {.own = kPhi3Tensors, .own_gguf = kPhi3GgufTensors},
};

}  // namespace quire::model
