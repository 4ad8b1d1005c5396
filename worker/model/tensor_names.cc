#include "worker/model/tensor_names.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
    {Part::kQueryDown, "self_attn.q_a_proj"},
    {Part::kQueryDownNorm, "self_attn.q_a_layernorm"},
    {Part::kQueryUp, "self_attn.q_b_proj"},
    {Part::kLatentDown, "self_attn.kv_a_proj_with_mqa"},
    {Part::kLatentNorm, "self_attn.kv_a_layernorm"},
    {Part::kLatentUp, "self_attn.kv_b_proj"},
    {Part::kMlpNorm, "post_attention_layernorm"},
    {Part::kGate, "mlp.gate_proj"},
    {Part::kUp, "mlp.up_proj"},
    {Part::kDown, "mlp.down_proj"},
    {Part::kRouter, "mlp.gate"},
    {Part::kSelectionBias, "mlp.gate.e_score_correction_bias$"},
    {Part::kSharedRouter, "mlp.shared_expert_gate"},
    {Part::kSharedGate, "mlp.shared_expert.gate_proj"},
    {Part::kSharedUp, "mlp.shared_expert.up_proj"},
    {Part::kSharedDown, "mlp.shared_expert.down_proj"},
    {Part::kRecurrentIn, "linear_attn.in_proj_qkv"},
    {Part::kRecurrentZ, "linear_attn.in_proj_z"},
    {Part::kRecurrentB, "linear_attn.in_proj_b"},
    {Part::kRecurrentA, "linear_attn.in_proj_a"},
    {Part::kConvolution, "linear_attn.conv1d"},
    {Part::kDecay, "linear_attn.A_log$"},
    {Part::kStepBias, "linear_attn.dt_bias$"},
    {Part::kGatedNorm, "linear_attn.norm"},
    {Part::kRecurrentOut, "linear_attn.out_proj"},
    {Part::kNextEmbeddingNorm, "enorm"},
    {Part::kNextHiddenNorm, "hnorm"},
    {Part::kNextProjection, "eh_proj"},
    {Part::kNextEmbedding, "embed_tokens"},
    {Part::kNextNorm, "shared_head.norm"},
    {Part::kNextHead, "shared_head.head"},
    {Part::kFusedGateUp, "mlp.experts.gate_up_proj$"},
    {Part::kFusedDown, "mlp.experts.down_proj$"},
    {Part::kExpertGate, "mlp.experts.*.gate_proj"},
    {Part::kExpertUp, "mlp.experts.*.up_proj"},
    {Part::kExpertDown, "mlp.experts.*.down_proj"},
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
    {Part::kQueryDown, "attn_q_a"},
    {Part::kQueryDownNorm, "attn_q_a_norm"},
    {Part::kQueryUp, "attn_q_b"},
    {Part::kLatentDown, "attn_kv_a_mqa"},
    {Part::kLatentNorm, "attn_kv_a_norm"},
    {Part::kHeadKeys, "attn_k_b"},
    {Part::kHeadValues, "attn_v_b"},
    {Part::kPostAttentionNorm, "post_attention_norm"},
    {Part::kMlpNorm, "ffn_norm"},
    {Part::kGate, "ffn_gate"},
    {Part::kUp, "ffn_up"},
    {Part::kDown, "ffn_down"},
    {Part::kPostMlpNorm, "post_ffw_norm"},
    {Part::kRouter, "ffn_gate_inp"},
    {Part::kSelectionBias, "exp_probs_b.bias$"},
    {Part::kSinks, "attn_sinks"},
    {Part::kSharedRouter, "ffn_gate_inp_shexp"},
    {Part::kSharedGate, "ffn_gate_shexp"},
    {Part::kSharedUp, "ffn_up_shexp"},
    {Part::kSharedDown, "ffn_down_shexp"},
    {Part::kRecurrentIn, "ssm_in"},
    {Part::kRecurrentPacked, "ssm_in"},
    {Part::kConvolution, "ssm_conv1d"},
    {Part::kDecay, "ssm_a$"},
    {Part::kStepBias, "ssm_dt"},
    {Part::kSkip, "ssm_d$"},
    {Part::kGatedNorm, "ssm_norm"},
    {Part::kRecurrentOut, "ssm_out"},
    {Part::kExpertGate, "ffn_gate_exps"},
    {Part::kExpertUp, "ffn_up_exps"},
    {Part::kExpertDown, "ffn_down_exps"},
};

const char* Look(std::span<const TensorName> names, Part part) {
  for (const TensorName& entry : names) {
    if (entry.part == part) return entry.name;
  }
  return nullptr;
}

}  // namespace

namespace {

// A part's name below a layer, or of the whole model.
std::string NameWithin(const char* found, bool gguf, const Place& place, std::string_view suffix) {
  std::string name = found;
  if (place.expert != kNoExpert) {
    name = absl::StrReplaceAll(name, {{"*", absl::StrCat(place.expert)}});
  }
  std::string end = absl::StrCat(".", AbslView(suffix));
  if (name.back() == '$') {
    name.pop_back();
    end = suffix == "weight" ? "" : absl::StrCat("_", AbslView(suffix));
  }
  if (place.layer == kNoLayer) return absl::StrCat(name, end);
  return absl::StrCat(gguf ? "blk." : "layers.", place.layer, ".", name, end);
}

}  // namespace

std::vector<std::string> TensorNames(const TensorNaming& naming, bool gguf, Part part,
                                     const Place& place, std::string_view suffix) {
  std::vector<std::string> names;
  for (const TensorName& own : gguf ? naming.own_gguf : std::span<const TensorName>()) {
    if (own.part == part) names.push_back(NameWithin(own.name, gguf, place, suffix));
  }
  if (!names.empty()) return names;
  const char* found = gguf ? nullptr : Look(naming.own, part);
  if (found == nullptr) {
    found = Look(gguf ? std::span<const TensorName>(kGguf) : kHuggingFace, part);
  }
  if (found == nullptr) return {};
  const std::string inner = NameWithin(found, gguf, place, suffix);
  if (gguf) return {inner};
  if (part == Part::kHead) return {inner, absl::StrCat("language_model.", inner)};
  for (const char* prefix : naming.prefixes) names.push_back(absl::StrCat(prefix, inner));
  return names;
}

std::vector<std::string> ModuleNames(const TensorNaming& naming, Part part, const Place& place) {
  constexpr std::string_view kSuffix = ".weight";
  std::vector<std::string> names =
      TensorNames(naming, /*gguf=*/false, part, place, kSuffix.substr(1));
  for (std::string& name : names) {
    if (absl::EndsWith(name, AbslView(kSuffix))) name.resize(name.size() - kSuffix.size());
  }
  return names;
}

}  // namespace quire::model
