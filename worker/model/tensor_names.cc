#include "worker/model/tensor_names.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::model {
namespace {

struct Name {
  Part part;
  const char* name;
};

// Below the prefixes of the language model ("model.", …) and, for parts of a layer, "layers.N.".
constexpr Name kHuggingFace[] = {
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

// Gemma 3 has a norm on both sides of each block; the others are called as above.
constexpr Name kHuggingFaceGemma3[] = {
    {Part::kPostAttentionNorm, "post_attention_layernorm"},
    {Part::kMlpNorm, "pre_feedforward_layernorm"},
    {Part::kPostMlpNorm, "post_feedforward_layernorm"},
};

constexpr Name kHuggingFaceOpt[] = {
    {Part::kPositions, "embed_positions"},
    {Part::kProjectIn, "project_in"},
    {Part::kProjectOut, "project_out"},
    {Part::kFinalNorm, "final_layer_norm"},
    {Part::kAttentionNorm, "self_attn_layer_norm"},
    {Part::kOutput, "self_attn.out_proj"},
    {Part::kMlpNorm, "final_layer_norm"},
    {Part::kUp, "fc1"},
    {Part::kDown, "fc2"},
};

// Below "blk.N." for parts of a layer.
constexpr Name kGguf[] = {
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

template <size_t kCount>
const char* Look(const Name (&names)[kCount], Part part) {
  for (const Name& entry : names) {
    if (entry.part == part) return entry.name;
  }
  return nullptr;
}

const char* HuggingFaceName(std::string_view family, Part part) {
  const char* name = nullptr;
  if (family == "gemma3") name = Look(kHuggingFaceGemma3, part);
  if (family == "opt") name = Look(kHuggingFaceOpt, part);
  return name != nullptr ? name : Look(kHuggingFace, part);
}

}  // namespace

std::vector<std::string> TensorNames(std::string_view family, bool gguf, Part part, int layer,
                                     std::string_view suffix) {
  const char* name = gguf ? Look(kGguf, part) : HuggingFaceName(family, part);
  if (name == nullptr) return {};
  const std::string end = absl::StrCat(".", AbslView(suffix));
  if (gguf) {
    return {layer == kNoLayer ? absl::StrCat(name, end)
                              : absl::StrCat("blk.", layer, ".", name, end)};
  }
  const std::string inner =
      layer == kNoLayer ? absl::StrCat(name, end) : absl::StrCat("layers.", layer, ".", name, end);
  if (part == Part::kHead) {
    return {inner, absl::StrCat("language_model.", inner)};
  }
  if (family == "opt") {
    return {absl::StrCat("model.decoder.", inner), absl::StrCat("decoder.", inner)};
  }
  // Image-and-text checkpoints hold the language model one level down; bare ones leave "model."
  // out.
  return {absl::StrCat("model.", inner), absl::StrCat("language_model.model.", inner),
          absl::StrCat("model.language_model.", inner), inner};
}

}  // namespace quire::model
