// Speculation in the engine: fewer steps for the same answers, the same windows, limits, ends,
// books and cached blocks as without it.
#include <gtest/gtest.h>

#include "tests/support/guess_drafter.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/draft/ngram_drafter.h"

namespace quire::test {
namespace {

// Steps in flight.
class SpeculationTest : public testing::TestWithParam<int> {
 protected:
  HarnessOptions Drafting(GuessDrafter& drafter, int32_t max_drafts = 4) const {
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.drafter = &drafter;
    options.engine.max_drafts = max_drafts;
    // A token more costs little: reading the weights takes most of a step.
    options.step_micros = [](int64_t tokens) { return 1000 + 10 * tokens; };
    return options;
  }
  static Submit Long(const Harness& harness, uint64_t request = 1) {
    std::mt19937_64 rng(request);
    Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, 20), 60);
    submit.sampling.ignore_eos = true;
    return submit;
  }
};

TEST_P(SpeculationTest, RightDraftsTakeFewerStepsForTheSameAnswer) {
  GuessDrafter drafter(0, 64);
  const HarnessOptions options = Drafting(drafter);
  Harness harness(options);
  Submit submit = Long(harness);
  submit.sampling.logprobs = 3;
  const Answer solo = Solo(options, submit);
  drafter.Know(submit.sampling.seed, 0, solo.tokens);
  harness.Send(submit);
  harness.RunFor(10'000'000);
  const Answer& answer = harness.answer(1);
  EXPECT_EQ(answer.tokens, solo.tokens);
  EXPECT_EQ(answer.logprobs.at(0), solo.logprobs.at(0));
  ASSERT_EQ(answer.ended.size(), 1u);
  const AttemptUsage& usage = answer.ended[0].usage;
  const AttemptUsage& without = solo.ended[0].usage;
  EXPECT_EQ(usage.computed_tokens, without.computed_tokens);
  EXPECT_EQ(usage.generated_tokens - usage.discarded_tokens, 60u);
  EXPECT_GE(usage.accepted_draft_tokens, 40u);
  EXPECT_EQ(usage.accepted_draft_tokens, usage.draft_tokens);
  EXPECT_LE(harness.engine().totals().steps, 30u);
  EXPECT_EQ(drafter.forgotten(), 1u);
  harness.ExpectBooksBalance();
}

TEST_P(SpeculationTest, AWindowALimitAndAStopEndInsideADraft) {
  GuessDrafter drafter(0, 64);
  const HarnessOptions options = Drafting(drafter, 8);
  Harness harness(options);
  Submit window = Long(harness, 1);
  Submit limit = Long(harness, 2);
  Submit stop = Long(harness, 3);
  limit.sampling.max_tokens = 7;
  const std::vector<TokenId> whole = Solo(options, stop).tokens;
  stop.sampling.stop_token_ids = {whole[16]};
  for (const Submit& submit : {window, limit, stop}) {
    // The drafter knows the answers as if nothing ended them.
    Submit endless = submit;
    endless.sampling.stop_token_ids.clear();
    endless.sampling.max_tokens = 60;
    drafter.Know(submit.sampling.seed, 0, Solo(options, endless).tokens);
  }
  window.initial_window = 5;
  for (const Submit& submit : {window, limit, stop}) harness.Send(submit);
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(1).tokens.size(), 5u);
  EXPECT_EQ(harness.answer(2).tokens.size(), 7u);
  EXPECT_EQ(harness.answer(2).ended.at(0).reason, EndReason::kLength);
  EXPECT_EQ(harness.answer(3).tokens, Solo(options, stop).tokens);
  EXPECT_TRUE(harness.answer(3).ended.at(0).by_stop_token);
  harness.GrantUpTo(1, 12);
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(1).tokens.size(), 12u);
  harness.GrantUpTo(1, 60);
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(1).tokens, Solo(options, Long(harness, 1)).tokens);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  harness.ExpectBooksBalance();
}

// The cache holds what it holds without speculation: the last sample's keys are never computed.
TEST_P(SpeculationTest, TheSameBlocksAreCached) {
  uint64_t hits[2] = {};
  for (const bool drafts : {false, true}) {
    GuessDrafter drafter(3, 64);
    HarnessOptions options = Drafting(drafter);
    Harness harness(options);
    const Submit submit = Long(harness);
    const Answer solo = Solo(options, submit);
    drafter.Know(submit.sampling.seed, 0, solo.tokens);
    if (!drafts) options.engine.drafter = nullptr;
    Harness engine(options);
    engine.Send(submit);
    engine.RunFor(10'000'000);
    Submit next = Long(engine, 2);
    std::vector<TokenId> prompt(submit.prompt_ids.begin(), submit.prompt_ids.end());
    prompt.insert(prompt.end(), solo.tokens.begin(), solo.tokens.end());
    prompt.push_back(1);
    next.prompt_ids = prompt;
    engine.Send(next);
    engine.RunFor(10'000'000);
    hits[drafts] = engine.answer(2).admission.cached_tokens;
    EXPECT_EQ(engine.engine().totals().accepted_draft_tokens > 0, drafts);
  }
  EXPECT_GT(hits[0], 60u);
  EXPECT_EQ(hits[0], hits[1]);
}

TEST_P(SpeculationTest, DraftsStayWithinTheTimeOfAStep) {
  GuessDrafter drafter(0, 64);
  HarnessOptions options = Drafting(drafter, 16);
  options.engine.max_step_time_us = 1200;
  int64_t steps = 0;
  int64_t longest = 0;
  options.step_micros = [&](int64_t tokens) {
    const int64_t micros = 500 + 100 * tokens;
    if (++steps > 24) longest = std::max(longest, micros);  // it knows by then what drafts cost
    return micros;
  };
  Harness harness(options);
  const Submit submit = Long(harness);
  drafter.Know(submit.sampling.seed, 0, Solo(options, submit).tokens);
  harness.Send(submit);
  Submit again = submit;
  again.key.request = RequestNumber(2);
  harness.RunFor(10'000'000);
  harness.Send(again);
  harness.RunFor(10'000'000);
  EXPECT_EQ(harness.answer(2).tokens, harness.answer(1).tokens);
  EXPECT_GT(harness.engine().totals().accepted_draft_tokens, 40u);
  EXPECT_GT(longest, 900);
  EXPECT_LE(longest, 1200);
}

// Where every token costs the same, a draft is worth no more than another row's token.
TEST_P(SpeculationTest, AFullBatchDraftsNextToNothing) {
  GuessDrafter drafter(2, 64);
  HarnessOptions options = Drafting(drafter);
  options.step_micros = [](int64_t tokens) { return 10 + 500 * tokens; };
  Harness harness(options);
  for (uint64_t request = 1; request <= 8; ++request) {
    const Submit submit = Long(harness, request);
    drafter.Know(submit.sampling.seed, 0, Solo(options, submit).tokens);
    harness.Send(submit);
  }
  harness.RunFor(100'000'000);
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_EQ(totals.generated_tokens - totals.discarded_tokens, 480u);
  // The steps by which it learns what drafts cost, and a probe now and then.
  EXPECT_LE(totals.draft_tokens, 8u * 4 * 8 + 8 * 2);
  EXPECT_GE(totals.draft_tokens, 4u);
  harness.ExpectBooksBalance();
}

// A drafter that is always wrong is asked for one token in every kDraftProbeTokens at last.
TEST_P(SpeculationTest, WrongDraftsStopAndAreProbedAgain) {
  GuessDrafter drafter(1, 64);
  const HarnessOptions options = Drafting(drafter);
  Harness harness(options);
  Submit submit = Long(harness);
  submit.sampling.max_tokens = 220;
  harness.Send(submit);
  harness.RunFor(10'000'000);
  const EngineTotals& totals = harness.engine().totals();
  EXPECT_EQ(harness.answer(1).tokens, Solo(options, submit).tokens);
  EXPECT_LE(totals.draft_rows, 8u + 8 + 220 / 32 + 2);
  EXPECT_GE(totals.draft_rows, 8u + 220 / 32 - 2);
}

// Beams and rows with a budget of thoughts have none; all others do, whatever they sample with.
TEST_P(SpeculationTest, BeamsAndThoughtsAreNotDraftedFor) {
  GuessDrafter drafter(0, 64);
  HarnessOptions options = Drafting(drafter);
  options.mask_threads = 0;
  Harness harness(options);
  Submit thinks = Long(harness);
  thinks.thought_budget =
      std::make_shared<const ThoughtBudget>(ThoughtBudget{2, true, false, {}, {{40}}, {12, 13}});
  harness.Send(thinks);
  Submit beams = Long(harness, 2);
  beams.sampling = SamplingParams();
  beams.sampling.max_tokens = 20;
  beams.sampling.beam_width = 2;
  harness.Send(beams);
  harness.RunFor(10'000'000);
  EXPECT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(2).ended.size(), 1u);
  EXPECT_EQ(harness.engine().totals().draft_rows, 0u);
}

// Each position of a draft has the mask of its own place in the text.
TEST_P(SpeculationTest, ConstrainedRowsAreDraftedFor) {
  uint64_t accepted = 0;
  uint64_t rejected = 0;
  for (const bool forced : {false, true}) {
    for (const uint64_t wrong_in : {uint64_t{0}, uint64_t{3}}) {
      GuessDrafter drafter(wrong_in, 64);
      HarnessOptions options = Drafting(drafter);
      options.mask_threads = GetParam() - 1;
      options.engine.forced_tokens = forced;
      Harness harness(options);
      std::vector<Submit> submits;
      for (const Constraint& constraint : TagConstraints()) {
        submits.push_back(Long(harness, submits.size() + 1));
        submits.back().constraint = constraint;
        submits.back().sampling.logprobs = 2;
        Submit plain = submits.back();
        const Answer solo = Solo(options, plain);
        drafter.Know(plain.sampling.seed, 0, solo.tokens);
      }
      for (const Submit& submit : submits) harness.Send(submit);
      harness.RunFor(10'000'000);
      for (const Submit& submit : submits) {
        const Answer solo = Solo(options, submit);
        const Answer& answer = harness.answer(submit.key.request.value());
        EXPECT_EQ(answer.tokens, solo.tokens);
        EXPECT_EQ(answer.logprobs, solo.logprobs);
        ASSERT_EQ(answer.ended.size(), 1u);
        EXPECT_EQ(answer.ended[0].reason, solo.ended.at(0).reason) << answer.ended[0].message;
      }
      const EngineTotals& totals = harness.engine().totals();
      accepted += totals.accepted_draft_tokens;
      rejected += totals.draft_tokens - totals.accepted_draft_tokens;
      EXPECT_EQ(totals.forced_tokens > 0, forced);
      EXPECT_EQ(harness.masks().size(), 0u);
      EXPECT_EQ(harness.masks().bytes(), 0u);
      harness.ExpectBooksBalance();
    }
  }
  EXPECT_GT(accepted, 20u);
  EXPECT_GT(rejected, 10u);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, SpeculationTest, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
