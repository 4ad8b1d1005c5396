#include "worker/model/tensor_names.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::model {
namespace {

// Below the prefixes of the language model ("model.", …) and, for parts of a layer, "layers.N.".
constexpr TensorName kHuggingFace[] = {
    {Part::kEmbedding, "embed_tokens"},
    {Part::kFinalNorm, "norm"},
    {Part::kHead, "lm_head"},
    {Part::kAttentionNorm, "input_layernorm"},
    {Part::kQuery, "self_attn.q_proj"},
    {Part::kKey, "self_attn.k_proj"},
    {Part::kValue, "self_attn.v_proj"},
    {Part::kQueryNorm, "self_attn.q_norm"},
    {Part::kKeyNorm, "self_attn.k_norm"},
    {Part::kOutput, "self_attn.o_proj"},
    {Part::kMlpNorm, "post_attention_layernorm"},
    {Part::kGate, "mlp.gate_proj"},
    {Part::kUp, "mlp.up_proj"},
    {Part::kDown, "mlp.down_proj"},
};

// Below "blk.N." for parts of a layer.
constexpr TensorName kGguf[] = {
    {Part::kEmbedding, "token_embd"},
    {Part::kFinalNorm, "output_norm"},
    {Part::kHead, "output"},
    {Part::kRopeFactors, "rope_freqs"},
    {Part::kAttentionNorm, "attn_norm"},
    {Part::kQuery, "attn_q"},
    {Part::kKey, "attn_k"},
    {Part::kValue, "attn_v"},
    {Part::kQueryNorm, "attn_q_norm"},
    {Part::kKeyNorm, "attn_k_norm"},
    {Part::kOutput, "attn_output"},
    {Part::kPostAttentionNorm, "post_attention_norm"},
    {Part::kMlpNorm, "ffn_norm"},
    {Part::kGate, "ffn_gate"},
    {Part::kUp, "ffn_up"},
    {Part::kDown, "ffn_down"},
    {Part::kPostMlpNorm, "post_ffw_norm"},
};

const char* Look(std::span<const TensorName> names, Part part) {
  for (const TensorName& entry : names) {
    if (entry.part == part) return entry.name;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> TensorNames(const TensorNaming& naming, bool gguf, Part part, int layer,
                                     std::string_view suffix) {
  const char* name = gguf ? nullptr : Look(naming.own, part);
  if (name == nullptr) name = Look(gguf ? std::span<const TensorName>(kGguf) : kHuggingFace, part);
  if (name == nullptr) return {};
  const char* layers = gguf ? "blk." : "layers.";
  const std::string inner = layer == kNoLayer
                                ? absl::StrCat(name, ".", AbslView(suffix))
                                : absl::StrCat(layers, layer, ".", name, ".", AbslView(suffix));
  if (gguf) return {inner};
  if (part == Part::kHead) return {inner, absl::StrCat("language_model.", inner)};
  std::vector<std::string> names;
  for (const char* prefix : naming.prefixes) names.push_back(absl::StrCat(prefix, inner));
  return names;
}

std::vector<std::string> ModuleNames(const TensorNaming& naming, Part part, int layer) {
  constexpr std::string_view kSuffix = ".weight";
  std::vector<std::string> names =
      TensorNames(naming, /*gguf=*/false, part, layer, kSuffix.substr(1));
  for (std::string& name : names) name.resize(name.size() - kSuffix.size());
  return names;
}

}  // namespace quire::model
