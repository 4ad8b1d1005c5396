#include "common/wire/features.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(WireFeatures, ThePlainPathNeedsNone) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_p = 0.9f;
  params.top_k = 40;
  params.min_p = 0.1f;
  params.stop_token_ids = {3};
  params.ignore_eos = true;
  EXPECT_TRUE(RequiredFeatures(params, 1).empty());
}

TEST(WireFeatures, EachParameterOutsideItNamesItsFeature) {
  SamplingParams params;
  params.typical_p = 0.5f;
  params.presence_penalty = 0.5f;
  params.min_tokens = 1;
  params.logit_bias = {{1, 2.0f}};
  params.allowed_token_ids = {1};
  params.bad_words = {{1}};
  params.logprobs = 1;
  params.prompt_logprobs = 1;
  params.beam_width = 2;
  const std::vector<std::string> expected = {
      "typical_p", "penalties", "min_tokens",      "logit_bias",  "allowed_token_ids",
      "bad_words", "logprobs",  "prompt_logprobs", "beam_search", "choices"};
  EXPECT_EQ(RequiredFeatures(params, 2), expected);
}

TEST(WireFeatures, TheFirstMissingOneIsNamed) {
  EXPECT_EQ(MissingFeature({"a", "b", "c"}, {"a"}), "b");
  EXPECT_EQ(MissingFeature({"a"}, {"b", "a"}), "");
  EXPECT_EQ(MissingFeature({}, {}), "");
}

}  // namespace
}  // namespace quire
