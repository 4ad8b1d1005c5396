// Prompts and parameters: what is served, and that every error names the client's field.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/features.h"
#include "router/chat/prompt.h"
#include "router/chat/salt.h"
#include "router/chat/sampling.h"
#include "tests/router/support/fake_text.h"

namespace quire {
namespace {

ModelFacts PlainModel() {
  ModelFacts model;
  model.name = "m";
  model.max_model_len = 100;
  model.vocab_size = 50;
  return model;
}
ModelFacts FullModel() {
  ModelFacts model = PlainModel();
  for (const std::string_view feature :
       {kFeatureTypicalP, kFeaturePenalties, kFeatureMinTokens, kFeatureLogitBias,
        kFeatureAllowedTokenIds, kFeatureBadWords, kFeatureLogprobs, kFeatureChoices}) {
    model.features.emplace_back(feature);
  }
  model.limits.max_choices = 4;
  model.limits.max_logprobs = 5;
  model.limits.max_logit_bias = 2;
  model.limits.max_stop_token_ids = 2;
  return model;
}
Result<SamplingParams> Resolve(const SamplingOptions& options, const ModelFacts& model,
                               const GenerationSettings& defaults = {}) {
  return ResolveSampling(options, defaults, model, RouterLimits(), 99);
}

TEST(Sampling, UnsetTakesTheModelsDefaultsThenNeutral) {
  GenerationSettings defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.repetition_penalty = 1.1f;
  SamplingOptions options;
  options.top_k = 7;
  const Result<SamplingParams> params = Resolve(options, FullModel(), defaults);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(params.value().temperature, 0.6f);
  EXPECT_EQ(params.value().top_k, 7);
  EXPECT_EQ(params.value().top_p, 1.0f);
  EXPECT_EQ(params.value().repetition_penalty, 1.1f);
  EXPECT_EQ(params.value().seed, 99u) << "drawn when the client has none";
}

TEST(Sampling, ADefaultThatIsNotServedIsNeutral) {
  GenerationSettings defaults;
  defaults.repetition_penalty = 1.1f;
  EXPECT_EQ(Resolve({}, PlainModel(), defaults).value().repetition_penalty, 1.0f);
}

TEST(Sampling, MinusOneTurnsTopKOff) {
  SamplingOptions options;
  options.top_k = -1;
  GenerationSettings defaults;
  defaults.top_k = 20;
  EXPECT_EQ(Resolve(options, PlainModel(), defaults).value().top_k, 0);
}

TEST(Sampling, NeutralValuesOfWhatIsNotServedAreAccepted) {
  SamplingOptions options;
  options.typical_p = 1.0f;
  options.repetition_penalty = 1.0f;
  options.frequency_penalty = 0.0f;
  options.presence_penalty = 0.0f;
  options.min_tokens = 0;
  options.n = 1;
  EXPECT_TRUE(Resolve(options, PlainModel()).ok());
}

TEST(Sampling, WhatIsServedComesThrough) {
  SamplingOptions options;
  options.seed = 5;
  options.typical_p = 0.5f;
  options.frequency_penalty = 1.0f;
  options.presence_penalty = -1.0f;
  options.min_tokens = 3;
  options.logit_bias = {{1, 2.0f}, {4, -2.0f}};
  options.allowed_token_ids = {1, 2};
  options.logprobs = 5;
  options.n = 4;
  options.stop_token_ids = {7, 8};
  options.bad_words = {"no"};
  const Result<SamplingParams> params = Resolve(options, FullModel());
  ASSERT_TRUE(params.ok()) << params.error().message;
  EXPECT_EQ(params.value().seed, 5u);
  EXPECT_EQ(params.value().logprobs, 6);
  EXPECT_EQ(params.value().logit_bias.size(), 2u);
}

TEST(Sampling, EveryErrorNamesItsFieldAndARange) {
  using Change = std::function<void(SamplingOptions&)>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::string field;
    Change change;
  };
  const auto expect = [](const Case& c, const ModelFacts& model) {
    SamplingOptions options;
    c.change(options);
    const Result<SamplingParams> params = Resolve(options, model);
    ASSERT_FALSE(params.ok()) << c.field;
    EXPECT_EQ(params.error().param, c.field) << params.error().message;
    EXPECT_EQ(params.error().code, ApiCode::kInvalidArgument);
    EXPECT_EQ(params.error().message.rfind(c.field + ": ", 0), 0u) << params.error().message;
    EXPECT_GT(params.error().message.size(), c.field.size() + 10);
  };
  const std::vector<Case> out_of_range = {
      {"temperature", [](auto& o) { o.temperature = -0.1f; }},
      {"temperature", [](auto& o) { o.temperature = 100.5f; }},
      {"temperature", [nan](auto& o) { o.temperature = nan; }},
      {"top_p", [](auto& o) { o.top_p = 0.0f; }},
      {"top_p", [](auto& o) { o.top_p = 1.1f; }},
      {"top_p", [nan](auto& o) { o.top_p = nan; }},
      {"top_k", [](auto& o) { o.top_k = -2; }},
      {"min_p", [](auto& o) { o.min_p = -0.5f; }},
      {"typical_p", [](auto& o) { o.typical_p = 0.0f; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = 0.0f; }},
      {"frequency_penalty", [](auto& o) { o.frequency_penalty = 2.5f; }},
      {"presence_penalty", [](auto& o) { o.presence_penalty = -2.5f; }},
      {"max_tokens", [](auto& o) { o.max_tokens = 0; }},
      {"min_tokens", [](auto& o) { o.min_tokens = -1; }},
      {"min_tokens",
       [](auto& o) {
         o.max_tokens = 5;
         o.min_tokens = 6;
       }},
      {"n", [](auto& o) { o.n = 0; }},
      {"n", [](auto& o) { o.n = 5; }},
      {"logprobs", [](auto& o) { o.logprobs = 6; }},
      {"logprobs", [](auto& o) { o.logprobs = -1; }},
      {"stop_token_ids", [](auto& o) { o.stop_token_ids = {50}; }},
      {"stop_token_ids", [](auto& o) { o.stop_token_ids = {-1}; }},
      {"stop_token_ids",
       [](auto& o) {
         o.stop_token_ids = {1, 2, 3};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{50, 1.0f}};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{1, 101.0f}};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{1, 1.0f}, {2, 1.0f}, {3, 1.0f}};
       }},
      {"allowed_token_ids", [](auto& o) { o.allowed_token_ids = {50}; }},
      {"stop", [](auto& o) { o.stop.assign(17, "x"); }},
      {"stop", [](auto& o) { o.stop = {std::string(257, 'x')}; }},
      {"stop", [](auto& o) { o.stop = {""}; }},
      {"stop", [](auto& o) { o.stop = {"\xff"}; }},
      {"bad_words", [](auto& o) { o.bad_words.assign(65, "x"); }},
      {"bad_words", [](auto& o) { o.bad_words = {std::string(257, 'x')}; }},
      {"use_beam_search", [](auto& o) { o.use_beam_search = true; }},
      {"prompt_logprobs", [](auto& o) { o.prompt_logprobs = 0; }},
      {"length_penalty", [](auto& o) { o.length_penalty = 2.0f; }},
  };
  for (const Case& c : out_of_range) expect(c, FullModel());
  const std::vector<Case> unserved = {
      {"typical_p", [](auto& o) { o.typical_p = 0.5f; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = 1.5f; }},
      {"frequency_penalty", [](auto& o) { o.frequency_penalty = 0.5f; }},
      {"presence_penalty", [](auto& o) { o.presence_penalty = 0.5f; }},
      {"min_tokens", [](auto& o) { o.min_tokens = 1; }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{1, 1.0f}};
       }},
      {"allowed_token_ids", [](auto& o) { o.allowed_token_ids = {1}; }},
      {"bad_words", [](auto& o) { o.bad_words = {"x"}; }},
      {"logprobs", [](auto& o) { o.logprobs = 0; }},
      {"n", [](auto& o) { o.n = 2; }},
  };
  for (const Case& c : unserved) expect(c, PlainModel());
}

TEST(Sampling, ABeamSearchHasAsManyBeamsAsChoicesAndIsSteeredByNothingElse) {
  ModelFacts model = FullModel();
  model.features.emplace_back(kFeatureBeamSearch);
  model.limits.max_choices = 32;
  model.limits.max_stop_token_ids = 10;
  GenerationSettings defaults;
  defaults.repetition_penalty = 1.1f;
  defaults.eos_token_ids = {48, 49};
  SamplingOptions beams;
  beams.use_beam_search = true;
  beams.n = 16;
  beams.length_penalty = 0.0f;
  beams.early_stopping = EarlyStopping::kNever;
  beams.stop_token_ids = {1, 2};
  const Result<SamplingParams> params = Resolve(beams, model, defaults);
  ASSERT_TRUE(params.ok()) << params.error().message;
  EXPECT_EQ(params.value().beam_width, 16);
  EXPECT_EQ(params.value().length_penalty, 0.0f);
  EXPECT_EQ(params.value().early_stopping, EarlyStopping::kNever);
  EXPECT_EQ(params.value().repetition_penalty, 1.0f) << "a default steers no beams";
  const std::vector<std::pair<std::string, std::function<void(SamplingOptions&)>>> refused = {
      {"n", [](auto& o) { o.n = 17; }},
      {"stop_token_ids",
       [](auto& o) {
         o.stop_token_ids = {1, 2, 3};
       }},
      {"length_penalty", [](auto& o) { o.length_penalty = 11.0f; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = 1.2f; }},
      {"frequency_penalty", [](auto& o) { o.frequency_penalty = 0.5f; }},
      {"presence_penalty", [](auto& o) { o.presence_penalty = 0.5f; }},
      {"logit_bias", [](auto& o) { o.logit_bias[1] = 1.0f; }},
      {"allowed_token_ids", [](auto& o) { o.allowed_token_ids = {1}; }},
      {"bad_words", [](auto& o) { o.bad_words = {"x"}; }},
      {"length_penalty",
       [](auto& o) {
         o.use_beam_search = false;
         o.length_penalty = 0.5f;
       }},
      {"early_stopping",
       [](auto& o) {
         o.use_beam_search = false;
         o.length_penalty = 1.0f;
       }},
  };
  for (const auto& [field, change] : refused) {
    SamplingOptions options = beams;
    change(options);
    const Result<SamplingParams> result = Resolve(options, model, defaults);
    ASSERT_FALSE(result.ok()) << field;
    EXPECT_EQ(result.error().param, field) << result.error().message;
  }
}

TEST(Sampling, LimitsAreServedAndOneMoreIsNot) {
  SamplingOptions options;
  options.stop.assign(16, std::string(256, 'x'));
  EXPECT_TRUE(Resolve(options, PlainModel()).ok());
}

TEST(MaxTokens, DefaultsAndTheEdgeOfTheContext) {
  const ModelFacts model = PlainModel();  // a context of 100
  SamplingOptions options;
  EXPECT_EQ(ResolveMaxTokens(options, {10}, model, false).value(), 16);
  EXPECT_EQ(ResolveMaxTokens(options, {10}, model, true).value(), 90);
  EXPECT_EQ(ResolveMaxTokens(options, {95}, model, false).value(), 5) << "what is left";
  EXPECT_EQ(ResolveMaxTokens(options, {99}, model, true).value(), 1);
  options.max_tokens = 90;
  EXPECT_EQ(ResolveMaxTokens(options, {10}, model, false).value(), 90);
  options.max_tokens = 91;
  const ApiError error = ResolveMaxTokens(options, {10}, model, false).error();
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_NE(error.message.find("[1, 90]"), std::string::npos) << error.message;
  options.max_tokens_field = "max_completion_tokens";
  EXPECT_EQ(ResolveMaxTokens(options, {10}, model, false).error().param, "max_completion_tokens");
}

TEST(MaxTokens, APromptThatIsTooLongIsBlamedInTheClientsWordAndOpenAis) {
  const ModelFacts model = PlainModel();  // a context of 100
  for (const bool chat : {false, true}) {
    const ApiError error = ResolveMaxTokens({}, {100, "text_input"}, model, chat).error();
    EXPECT_EQ(error.code, ApiCode::kInvalidArgument);
    EXPECT_EQ(error.param, "text_input");
    EXPECT_EQ(error.reason, "context_length_exceeded");
    EXPECT_EQ(error.message,
              "text_input: has 100 tokens, and the context of model m holds 100 with the answer: "
              "send at most 99");
  }
}

class PromptTest : public ::testing::Test {
 protected:
  PromptTest() {
    options_.vocab_size = kFakeVocab;
    options_.max_model_len = 100;
  }
  Result<std::vector<TokenId>> Build(const Prompt& prompt) {
    return BuildPrompt(text_, prompt, options_);
  }
  FakeText text_;
  PromptOptions options_;
};

TEST_F(PromptTest, CompletionsBeginOnceAndChatsAreNotBegunAgain) {
  const auto begins = [](const std::vector<TokenId>& ids) {
    return std::count(ids.begin(), ids.end(), kFakeBos);
  };
  EXPECT_EQ(begins(Build(TextPrompt{"hi", true}).value()), 1);
  EXPECT_EQ(begins(Build(TextPrompt{"hi", false}).value()), 0);
  ChatPrompt chat;
  chat.messages_json = "[{}]";
  EXPECT_EQ(begins(Build(chat).value()), 0) << "the template writes its own";
  chat.add_special_tokens = true;
  EXPECT_EQ(begins(Build(chat).value()), 1);
}

TEST_F(PromptTest, AModelWithoutATemplateContinuesTheTextThatStandsInForTheChat) {
  ChatPrompt chat;
  chat.messages_json = R"([{"role":"user","content":"x"}])";
  chat.without_template = "ab";
  const Result<std::vector<TokenId>> chats = Build(chat);
  ASSERT_TRUE(chats.ok());
  EXPECT_EQ(chats.value(), FakeIds("<chat>" + chat.messages_json));
  text_.chat_problem = "it has no template";
  const Result<std::vector<TokenId>> continues = Build(chat);
  ASSERT_TRUE(continues.ok());
  EXPECT_EQ(continues.value(), (std::vector<TokenId>{kFakeBos, 'a', 'b'}));
}

TEST_F(PromptTest, TokensAreTakenAsTheyAre) {
  EXPECT_EQ(Build(TokenPrompt{{1, 2, 3}}).value(), (std::vector<TokenId>{1, 2, 3}));
}

TEST_F(PromptTest, EveryErrorNamesItsField) {
  EXPECT_EQ(Build(TokenPrompt{}).error().param, "prompt");
  EXPECT_EQ(Build(TextPrompt{"", false}).error().param, "prompt");
  EXPECT_EQ(Build(TokenPrompt{{-1}}).error().param, "prompt");
  EXPECT_EQ(Build(TokenPrompt{{static_cast<TokenId>(kFakeVocab)}}).error().param, "prompt");
  EXPECT_EQ(Build(TextPrompt{"\xC3", true}).error().param, "prompt");
  ChatPrompt chat;
  chat.messages_json = "[]";
  EXPECT_EQ(Build(chat).error().param, "messages");
  options_.limits.max_prompt_bytes = 4;
  EXPECT_TRUE(Build(TextPrompt{"1234", true}).ok());
  EXPECT_EQ(Build(TextPrompt{"12345", true}).error().code, ApiCode::kTooLarge);
  EXPECT_EQ(Build(TextPrompt{"12345", true}).error().param, "prompt");
}

TEST_F(PromptTest, TruncationKeepsTheEnd) {
  options_.truncate_prompt_tokens = 2;
  EXPECT_EQ(Build(TokenPrompt{{1, 2, 3}}).value(), (std::vector<TokenId>{2, 3}));
  options_.truncate_prompt_tokens = 5;
  EXPECT_EQ(Build(TokenPrompt{{1, 2, 3}}).value().size(), 3u);
  options_.truncate_prompt_tokens = -1;
  EXPECT_EQ(Build(TokenPrompt{std::vector<TokenId>(500, 1)}).value().size(), 99u);
  for (const int bad : {0, -2}) {
    options_.truncate_prompt_tokens = bad;
    EXPECT_EQ(Build(TokenPrompt{{1}}).error().param, "truncate_prompt_tokens");
  }
}

TEST_F(PromptTest, BadWordsAreKeptOutWithAndWithoutASpace) {
  const auto words = BuildBadWords(text_, {"no", " no"});
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words.value(), (std::vector<std::vector<TokenId>>{FakeIds("no"), FakeIds(" no")}));
  EXPECT_EQ(BuildBadWords(text_, {std::string(70, 'x')}).error().param, "bad_words");
}

TEST(Salt, SeparatesGroupsAndSalts) {
  const std::string salt = CacheSalt(kPublicSaltKey, "a", "b");
  EXPECT_EQ(salt.size(), 32u);
  EXPECT_EQ(CacheSalt(kPublicSaltKey, "a", "b"), salt);
  EXPECT_NE(CacheSalt(kPublicSaltKey, "ab", ""), salt);
  EXPECT_NE(CacheSalt(kPublicSaltKey, "", "ab"), CacheSalt(kPublicSaltKey, "ab", ""));
  EXPECT_NE(CacheSalt("another key", "a", "b"), salt);
}

TEST(Salt, AGroupAndATenantOfOneNameShareNothing) {
  TenantProfile in_group;
  in_group.name = "a";
  in_group.cache_group = "shared";
  TenantProfile named_like_it;
  named_like_it.name = "shared";
  TenantProfile mate;
  mate.name = "b";
  mate.cache_group = "shared";
  SaltBook book("key");
  EXPECT_NE(book.Of(in_group.CacheDomain(), ""), book.Of(named_like_it.CacheDomain(), ""));
  EXPECT_EQ(book.Of(in_group.CacheDomain(), ""), book.Of(mate.CacheDomain(), ""));
}

TEST(Salt, ABookSaysWhatTheFunctionSaysHoweverManyItHasSaid) {
  SaltBook book("key");
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < SaltBook::kMaxRemembered + 10; ++i) {
      const std::string group = "group " + std::to_string(i);
      ASSERT_EQ(book.Of(group, ""), CacheSalt("key", group, ""));
    }
  }
  EXPECT_EQ(book.Of("a", "b"), CacheSalt("key", "a", "b"));
  EXPECT_EQ(book.Of("a", ""), CacheSalt("key", "a", ""));
  EXPECT_EQ(SaltBook("").Of("a", ""), CacheSalt(kPublicSaltKey, "a", ""));
}

}  // namespace
}  // namespace quire
