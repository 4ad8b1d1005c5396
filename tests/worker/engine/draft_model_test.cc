// A draft model beside the engine's, over the tag model, whose tokens depend on every key that a
// real one reads: a drafter of the same model is right about every token, however its pages are
// cut, shared, given away and found again. One wrong key, and it is not.
#include <gtest/gtest.h>

#include "tests/support/tag_draft_model.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

// It reads all of a row at once.
void Unhurried(ModelDrafterOptions& options) {
  options.limits.max_tokens = 4096;
  options.max_catch_up_us = 1'000'000'000;
}

class DraftModelTest : public testing::TestWithParam<int> {  // steps in flight
 protected:
  HarnessOptions Drafting(Drafter& drafter) const {
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.drafter = &drafter;
    options.engine.max_drafts = 4;
    options.step_micros = [](int64_t tokens) { return 1000 + 10 * tokens; };
    return options;
  }
  static HarnessOptions Plain(HarnessOptions options) {
    options.engine.drafter = nullptr;
    return options;
  }
  // Sampled in every way.
  static Submit Some(const Harness& harness, std::mt19937_64& rng, uint64_t request) {
    Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, 2 + rng() % 60), 60);
    submit.sampling.ignore_eos = true;
    submit.sampling.temperature = request % 3 == 0 ? 0.0f : 0.9f;
    submit.sampling.top_p = request % 2 == 0 ? 0.9f : 1.0f;
    submit.sampling.repetition_penalty = request % 4 == 0 ? 1.2f : 1.0f;
    if (request % 5 == 0) submit.sampling.bad_words = {{1, 2}, {3}};
    return submit;
  }
  // Serves all at once; each answer must be the one without a drafter.
  static void Serve(Harness& harness, const HarnessOptions& options,
                    const std::vector<Submit>& submits) {
    for (const Submit& submit : submits) harness.Send(submit);
    harness.RunFor(60'000'000);
    for (const Submit& submit : submits) {
      const uint64_t request = submit.key.request.value();
      SCOPED_TRACE(request);
      EXPECT_EQ(harness.answer(request).tokens, Solo(Plain(options), submit).tokens);
      ASSERT_EQ(harness.answer(request).ended.size(), 1u);
    }
    harness.ExpectBooksBalance();
  }
};

TEST_P(DraftModelTest, TheSameModelIsRightAboutEveryToken) {
  TagDraftModel model(SmallEngine().engine);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(1);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 12; ++request) {
    submits.push_back(Some(harness, rng, request));
  }
  Serve(harness, options, submits);
  model.drafter->CheckInvariants();
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_GT(totals.accepted_draft_tokens, 300u);
  EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
  EXPECT_LT(totals.steps, 12u * 60u / 8u);
  EXPECT_EQ(model.drafter->totals().evictions, 0u);
}

TEST_P(DraftModelTest, AModelThatIsRightNowAndThenChangesNothing) {
  // Of another model: equal logits only where chance wants it, at low temperature hardly ever.
  TagDraftModel model(SmallEngine().engine, 512, nullptr,
                      [](uint64_t seed) { return seed % 2000 == 7 ? 0u : 3u; });
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(2);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 8; ++request) {
    submits.push_back(Some(harness, rng, request));
  }
  Serve(harness, options, submits);
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_GT(totals.accepted_draft_tokens, 100u);
  EXPECT_LT(totals.accepted_draft_tokens, totals.draft_tokens);
}

TEST_P(DraftModelTest, PagesGoFromOneSequenceToTheNext) {
  // For one and a half of the longest sequences: 29 blocks of one group, and of two.
  TagDraftModel model(SmallEngine().engine, 72);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(3);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 12; ++request) {
    submits.push_back(Some(harness, rng, request));
  }
  Serve(harness, options, submits);
  model.drafter->CheckInvariants();
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_GT(model.drafter->totals().evictions, 0u);
  EXPECT_GT(totals.accepted_draft_tokens, 20u);
  EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
}

TEST_P(DraftModelTest, APromptThatItHasSeenIsFoundInItsCache) {
  TagDraftModel model(SmallEngine().engine);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(4);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 50);
  for (uint64_t request = 1; request <= 3; ++request) {
    Submit submit = harness.MakeSubmit(request, prompt, 30);
    submit.sampling.ignore_eos = true;
    Serve(harness, options, {submit});
  }
  EXPECT_EQ(model.drafter->totals().cached_tokens, 2u * 48u);
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
}

TEST_P(DraftModelTest, ALongPromptIsReadPieceByPiece) {
  const auto slow = [](ModelDrafterOptions& options) { options.max_catch_up_us = 0; };
  TagDraftModel model(SmallEngine().engine, 512, slow);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(5);
  Submit submit = harness.MakeSubmit(1, RandomPrompt(rng, 120), 80);
  submit.sampling.ignore_eos = true;
  Serve(harness, options, {submit});
  // A block at a time: about one for each token until a few are left.
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_GT(totals.steps, 25u);
  EXPECT_LT(totals.steps, 60u);
  EXPECT_GT(totals.accepted_draft_tokens, 30u);
  EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
}

TEST_P(DraftModelTest, WhatIsBeyondTheDraftModelIsNotDraftedFor) {
  const auto small = [](ModelDrafterOptions& options) {
    options.limits.vocab_size = 40;
    options.limits.max_model_len = 100;
  };
  TagDraftModel model(SmallEngine().engine, 512, small);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  Submit tokens = harness.MakeSubmit(1, {1, 2, 41}, 20);
  Submit names = harness.MakeSubmit(2, {1, 2, 3}, 20);
  names.sampling.logit_bias = {{50, 1.0f}};
  Submit words = harness.MakeSubmit(3, {1, 2, 4}, 20);
  words.sampling.bad_words = {{1, 60}};
  Submit allowed = harness.MakeSubmit(4, {1, 2, 5}, 20);
  allowed.sampling.allowed_token_ids = {1, 2, 45};
  Submit length = harness.MakeSubmit(5, std::vector<TokenId>(98, 3), 20);
  std::vector<Submit> submits = {tokens, names, words, allowed, length};
  for (Submit& submit : submits) submit.sampling.ignore_eos = true;
  Serve(harness, options, submits);
  EXPECT_EQ(model.drafter->totals().unfit, 5u);
  EXPECT_EQ(harness.engine().totals().draft_tokens, 0u);
}

// Rows go on without drafts, and with right ones when the device is back, without its keys.
TEST_P(DraftModelTest, WhileItsDeviceIsLostNothingIsDrafted) {
  TagDraftModel model(SmallEngine().engine);
  const HarnessOptions options = Drafting(*model.drafter);
  Harness harness(options);
  std::mt19937_64 rng(6);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 4; ++request) {
    submits.push_back(Some(harness, rng, request));
    submits.back().sampling.max_tokens = 180;
    harness.Send(submits.back());
  }
  harness.RunFor(20'000);
  const EngineTotals& totals = harness.engine().totals();
  const uint64_t before = totals.draft_tokens;
  EXPECT_GT(before, 0u);
  model.runner->Lose(1'000'000);
  harness.RunFor(15'000);
  const uint64_t lost = totals.draft_tokens;
  harness.RunFor(15'000);
  EXPECT_EQ(totals.draft_tokens, lost);
  model.runner->Lose(1);
  harness.RunFor(60'000'000);
  EXPECT_GT(totals.draft_tokens, lost);
  EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
  for (const Submit& submit : submits) {
    EXPECT_EQ(harness.answer(submit.key.request.value()).tokens,
              Solo(Plain(options), submit).tokens);
  }
  model.drafter->CheckInvariants();
  harness.ExpectBooksBalance();
}

// Preemption, windows, choices and cancels around it.
TEST_P(DraftModelTest, NothingThatHappensToRowsMakesItWrong) {
  uint64_t accepted = 0, compared = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    EngineOptions engine = SmallEngine().engine;
    engine.page_count = 100 + static_cast<int64_t>(rng() % 200);
    engine.max_choices = 3;
    // Of every second seed it is another model, which is wrong most of the time.
    const auto salts = [seed](uint64_t) { return seed % 2; };
    TagDraftModel model(engine, 80 + static_cast<int64_t>(rng() % 300), nullptr, salts);
    CheckedDrafter drafter(
        *model.drafter,
        [&] { return std::make_unique<TagDraftModel>(engine, 512, Unhurried, salts); },
        [] { ADD_FAILURE() << "a proposal depends on more than its row"; });
    HarnessOptions options = Drafting(drafter);
    options.engine.page_count = engine.page_count;
    options.engine.max_choices = engine.max_choices;
    Harness harness(options);
    std::vector<Submit> submits;
    for (uint64_t request = 1; request <= 10; ++request) {
      Submit& submit = submits.emplace_back(Some(harness, rng, request));
      submit.choices.resize(1 + rng() % 3);
      submit.initial_window = rng() % 2 == 0 ? 5 : 1000;
      harness.Send(submit);
      harness.RunFor(static_cast<int64_t>(rng() % 20'000));
      if (request > 2 && rng() % 3 == 0) harness.Cancel(1 + rng() % request);
      for (uint32_t choice = 0; choice < 3; ++choice) harness.GrantUpTo(request, 1000, choice);
    }
    harness.RunFor(60'000'000);
    for (Submit& submit : submits) {
      submit.initial_window = 1000;
      const Answer& answer = harness.answer(submit.key.request.value());
      const Ended* const end = answer.end_of(0);
      if (end == nullptr || end->reason != EndReason::kLength) continue;
      EXPECT_EQ(answer.tokens, Solo(Plain(options), submit).tokens);
    }
    model.drafter->CheckInvariants();
    const EngineTotals& totals = harness.engine().totals();
    if (seed % 2 == 0) {
      EXPECT_EQ(totals.accepted_draft_tokens, totals.draft_tokens);
    }
    accepted += totals.accepted_draft_tokens;
    compared += drafter.compared();
    harness.ExpectBooksBalance();
  }
  EXPECT_GT(accepted, 20 * kSeeds);
  EXPECT_GT(compared, 20 * kSeeds);
}

INSTANTIATE_TEST_SUITE_P(InFlight, DraftModelTest, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
