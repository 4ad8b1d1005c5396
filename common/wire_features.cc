#include "common/wire_features.h"

#include <algorithm>

namespace quire {

std::vector<std::string> RequiredFeatures(const SamplingParams& params, size_t choice_count) {
  std::vector<std::string> features;
  const auto need = [&features](bool used, std::string_view name) {
    if (used) features.emplace_back(name);
  };
  need(params.typical_p != 1.0f, kFeatureTypicalP);
  need(params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
           params.presence_penalty != 0.0f,
       kFeaturePenalties);
  need(params.min_tokens > 0, kFeatureMinTokens);
  need(!params.logit_bias.empty(), kFeatureLogitBias);
  need(!params.allowed_token_ids.empty(), kFeatureAllowedTokenIds);
  need(!params.bad_words.empty(), kFeatureBadWords);
  need(params.logprobs > 0, kFeatureLogprobs);
  need(params.prompt_logprobs > 0 || params.max_tokens == 0, kFeaturePromptLogprobs);
  need(params.beam_width > 0, kFeatureBeamSearch);
  need(choice_count > 1, kFeatureChoices);
  return features;
}

std::string_view MissingFeature(const std::vector<std::string>& required,
                                const std::vector<std::string>& offered) {
  for (const std::string& feature : required) {
    if (std::find(offered.begin(), offered.end(), feature) == offered.end()) return feature;
  }
  return {};
}

}  // namespace quire
