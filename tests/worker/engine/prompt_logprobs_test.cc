// Prompt logprobs through the engine: each position once and the same, however the prompt was cut,
// whoever shared the batch, and never again on a resume.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

constexpr size_t kPrompt = 90;

Submit Scored(const Harness& harness, uint64_t request, int32_t max_tokens) {
  std::mt19937_64 rng(request);
  Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, kPrompt), max_tokens);
  submit.sampling.prompt_logprobs = 1 + 3;
  submit.sampling.ignore_eos = true;
  return submit;
}

void ExpectSamePrompt(const PromptLogprobs& got, const PromptLogprobs& wanted) {
  ASSERT_EQ(got.logprobs, wanted.logprobs);
  ASSERT_EQ(got.ranks, wanted.ranks);
  ASSERT_EQ(got.top.size(), wanted.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) {
    ASSERT_EQ(got.top[i].ids, wanted.top[i].ids) << i;
    ASSERT_EQ(got.top[i].logprobs, wanted.top[i].logprobs) << i;
  }
}

TEST(PromptLogprobsTest, EveryPositionHasItsOwn) {
  Harness harness(SmallEngine());
  const Submit submit = Scored(harness, 1, 4);
  harness.Send(submit);
  harness.RunFor(0);
  const Answer& answer = harness.answer(1);
  ASSERT_EQ(answer.prompt.logprobs.size(), kPrompt - 1);
  EXPECT_EQ(answer.tokens.size(), 4u);
  for (size_t i = 0; i + 1 < kPrompt; ++i) {
    const TopLogprobs& top = answer.prompt.top[i];
    ASSERT_EQ(top.ids.size(), 3u);
    const uint32_t rank = answer.prompt.ranks[i];
    ASSERT_GE(rank, 1u);
    ASSERT_LE(rank, 64u);
    EXPECT_LE(answer.prompt.logprobs[i], top.logprobs[0]);
    if (rank > 3) continue;
    EXPECT_EQ(top.ids[rank - 1], submit.prompt_ids[i + 1]);
    EXPECT_EQ(top.logprobs[rank - 1], answer.prompt.logprobs[i]);
  }
}

TEST(PromptLogprobsTest, TheSameWhateverTheChunksTheNeighboursAndThePreemptions) {
  for (const int in_flight : {1, 2}) {
    for (const int budget : {1, 5, 16, 64, 4000}) {
      if (!kAllSeeds && (in_flight != 2 || budget != 16)) continue;
      HarnessOptions options = SmallEngine();
      options.max_in_flight = in_flight;
      options.engine.max_num_batched_tokens = budget;
      options.engine.page_count = 180;
      options.step_micros = [](int64_t) { return 100; };
      Harness harness(options);
      for (uint64_t request = 1; request <= 6; ++request) {
        harness.Send(Scored(harness, request, 20));
      }
      harness.RunFor(10'000'000);
      for (uint64_t request = 1; request <= 6; ++request) {
        const Answer& answer = harness.answer(request);
        const Answer alone = Solo(options, Scored(harness, request, 20));
        ASSERT_EQ(answer.prompt.logprobs.size(), kPrompt - 1) << request;
        ExpectSamePrompt(answer.prompt, alone.prompt);
        EXPECT_EQ(answer.tokens, alone.tokens);
      }
      harness.ExpectBooksBalance();
    }
  }
}

// A cached block has no logits: the prompt is computed again, and then serves others.
TEST(PromptLogprobsTest, TheCacheIsNotLookedUp) {
  HarnessOptions options = SmallEngine();
  Harness harness(options);
  for (uint64_t request = 1; request <= 3; ++request) {
    Submit submit = Scored(harness, 1, 4);  // one prompt for all
    submit.key.request = RequestNumber(request);
    if (request != 2) submit.sampling.prompt_logprobs = 0;
    harness.Send(submit);
    harness.RunFor(0);
    ASSERT_EQ(harness.answer(request).ended.size(), 1u);
    const uint32_t cached = harness.answer(request).ended[0].usage.cached_tokens;
    EXPECT_EQ(cached > 0, request == 3) << request;
    EXPECT_EQ(harness.answer(request).prompt.logprobs.size(), request == 2 ? kPrompt - 1 : 0);
    EXPECT_EQ(harness.answer(request).tokens, harness.answer(1).tokens);
  }
}

TEST(PromptLogprobsTest, NotSentAgainOnAResume) {
  Harness harness(SmallEngine());
  Submit whole = Scored(harness, 1, 8);
  harness.Send(whole);
  harness.RunFor(0);
  Submit resumed = whole;
  resumed.key = {RequestNumber(2), Attempt(1)};
  const std::vector<TokenId>& tokens = harness.answer(1).tokens;
  resumed.choices[0].outputs.assign(tokens.begin(), tokens.begin() + 3);
  harness.Send(resumed);
  harness.RunFor(0);
  EXPECT_TRUE(harness.answer(2).prompt.logprobs.empty());
  EXPECT_EQ(harness.answer(2).tokens, tokens);
}

TEST(PromptLogprobsTest, ThePromptAlone) {
  Harness harness(SmallEngine());
  harness.Send(Scored(harness, 1, 0));
  Submit one = harness.MakeSubmit(2, {5}, 0);  // nothing to score, and nothing to write
  one.sampling.prompt_logprobs = 1;
  harness.Send(one);
  harness.RunFor(0);
  for (const uint64_t request : {1, 2}) {
    const Answer& answer = harness.answer(request);
    EXPECT_EQ(answer.prompt.logprobs.size(), request == 1 ? kPrompt - 1 : 0);
    EXPECT_TRUE(answer.tokens.empty());
    ASSERT_EQ(answer.ended.size(), 1u);
    EXPECT_EQ(answer.ended[0].reason, EndReason::kLength);
    EXPECT_EQ(answer.ended[0].usage.generated_tokens, answer.ended[0].usage.discarded_tokens);
  }
  harness.ExpectBooksBalance();
}

TEST(PromptLogprobsTest, NotANumberFailsThatRequestAlone) {
  HarnessOptions options = SmallEngine();
  Harness harness(options);
  for (uint64_t request = 1; request <= 5; ++request) {
    Submit submit = Scored(harness, request, 12);
    if (request == 4) submit.sampling.prompt_logprobs = 0;  // fails at its first sample instead
    harness.Send(submit);
  }
  harness.runner().program().SetNanSeeds({3 * 1000 + 7, 4 * 1000 + 7});
  harness.RunFor(0);
  for (uint64_t request = 1; request <= 5; ++request) {
    const Answer& answer = harness.answer(request);
    ASSERT_EQ(answer.ended.size(), 1u);
    if (request == 3 || request == 4) {
      EXPECT_EQ(answer.ended[0].reason, EndReason::kFailed);
      EXPECT_EQ(answer.ended[0].message.rfind("INTERNAL", 0), 0u);
      EXPECT_FALSE(answer.ended[0].retryable);
      EXPECT_TRUE(answer.tokens.empty());
      continue;
    }
    const Answer alone = Solo(options, Scored(harness, request, 12));
    EXPECT_EQ(answer.tokens, alone.tokens);
    ExpectSamePrompt(answer.prompt, alone.prompt);
  }
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

}  // namespace
}  // namespace quire::test
