#include "common/wire/features.h"

#include <algorithm>

namespace quire {

std::vector<std::string> RequiredFeatures(const SamplingParams& params, size_t choice_count) {
  const SamplingParams neutral;
  std::vector<std::string> features;
  const auto need = [&features](bool used, std::string_view name) {
    const auto listed = std::find(features.begin(), features.end(), name);
    if (used && !name.empty() && listed == features.end()) features.emplace_back(name);
  };
#define QUIRE_NEED_NUMBER(name, range, feature) need(params.name != neutral.name, feature);
  QUIRE_SAMPLING_NUMBERS(QUIRE_NEED_NUMBER)
#undef QUIRE_NEED_NUMBER
  need(!params.logit_bias.empty(), kFeatureLogitBias);
#define QUIRE_NEED_LIST(name, most, feature) need(!params.name.empty(), feature);
  QUIRE_SAMPLING_LISTS(QUIRE_NEED_LIST)
#undef QUIRE_NEED_LIST
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
