// Constrained answers on the tag model: each follows its grammar whatever is around it, and equals
// the reference, which computes the mask of every token again.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/worker/engine/constrained_engine.h"
#include "worker/runner/step_masks.h"

namespace quire::test {
namespace {

Submit RandomConstrained(const Harness& harness, std::mt19937_64& rng, uint64_t request) {
  Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, 1 + rng() % 30), 24);
  if (rng() % 3 != 0) submit.constraint = TagConstraints()[rng() % TagConstraints().size()];
  submit.choices.resize(1 + rng() % 3);
  submit.sampling.temperature = rng() % 3 == 0 ? 0.0f : 1.0f;
  submit.sampling.ignore_eos = rng() % 2 == 0;
  if (rng() % 4 == 0) submit.sampling.min_tokens = 2;
  if (rng() % 4 == 0) submit.sampling.frequency_penalty = 1.5f;
  if (rng() % 4 == 0) submit.sampling.max_tokens = 3;
  return submit;
}

// With rows for few of the requests.
TEST(ConstrainedEngine, EqualsTheReferenceAmongNeighbours) {
  int64_t rows = 0;
  uint64_t forced = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 rng(seed);
    HarnessOptions options = Constrained(1 + static_cast<int>(seed % 2));
    options.engine.max_num_seqs = 4;
    options.engine.page_count = 90;
    options.engine.max_num_batched_tokens = 8 + static_cast<int32_t>(rng() % 30);
    options.engine.forced_tokens = seed % 4 != 0;
    Harness harness(options);
    std::vector<Submit> submits;
    for (uint64_t request = 1; request <= 8; ++request) {
      submits.push_back(RandomConstrained(harness, rng, request));
      harness.Send(submits.back());
      if (rng() % 2 == 0) harness.Once();
    }
    harness.RunFor(0);
    for (const Submit& submit : submits) {
      ExpectConstrained(TagModelOf(options.engine), submit,
                        harness.answer(submit.key.request.value()));
    }
    EXPECT_EQ(harness.masks().size(), 0u);
    EXPECT_EQ(harness.masks().bytes(), 0u);
    harness.ExpectBooksBalance();
    const EngineTotals& totals = harness.engine().totals();
    rows += static_cast<int64_t>(totals.constrained_rows);
    EXPECT_TRUE(options.engine.forced_tokens || totals.forced_tokens == 0);
    forced += totals.accepted_forced_tokens;
    if (HasFailure()) return;
  }
  EXPECT_GT(rows, 0);
  EXPECT_TRUE(forced > 0 || !kAllSeeds);
}

// Masks of drafts are bounded: rows beyond that many go on one by one.
TEST(ForcedTokens, AStepHasNoMoreThanTheLimit) {
  HarnessOptions options = Constrained();
  options.engine.max_num_seqs = 12;
  options.engine.max_num_batched_tokens = 512;
  std::string text;
  for (int i = 0; i < 40; ++i) text += static_cast<char>('d' + i % 20);
  Harness harness(options);
  for (uint64_t request = 1; request <= 12; ++request) {
    Submit submit = harness.MakeSubmit(request, {1, 2, 3}, 60);
    submit.constraint = ConstraintOf(ConstraintKind::kRegex, text);
    harness.Send(submit);
  }
  harness.RunFor(0);
  for (uint64_t request = 1; request <= 12; ++request) {
    EXPECT_EQ(TagText(harness.answer(request).tokens), text);
  }
  const EngineTotals& totals = harness.engine().totals();
  static_assert(kMaxMaskedDrafts == 8 * kMaxDraftTokens);
  EXPECT_EQ(totals.accepted_forced_tokens, totals.forced_tokens);
  EXPECT_GE(totals.forced_tokens, 12u * 31);
  // 12 rows of up to 32 drafts are more than one step may have.
  EXPECT_GE(totals.steps, 4u);
}
TEST(ConstrainedEngine, ThreadsChangeNothing) {
  std::mt19937_64 rng(7);
  const HarnessOptions options = Constrained(2, 3);
  Harness harness(options);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 30; ++request) {
    submits.push_back(RandomConstrained(harness, rng, request));
    harness.Send(submits.back());
  }
  harness.RunFor(0);
  for (const Submit& submit : submits) {
    ExpectConstrained(TagModelOf(options.engine), submit,
                      harness.answer(submit.key.request.value()));
  }
}

TEST(ConstrainedEngine, ResumesAtEveryIndex) {
  const HarnessOptions options = Constrained();
  for (const Constraint& constraint : TagConstraints()) {
    Submit submit = Harness(options).MakeSubmit(1, {5, 6, 7, 8, 9}, 16);
    submit.constraint = constraint;
    const ReferenceAnswer whole = TagAnswer(TagModelOf(options.engine), submit, 0, 0);
    ASSERT_FALSE(whole.tokens.empty());
    for (size_t kept = 1; kept <= whole.tokens.size(); ++kept) {
      Submit resumed = submit;
      const auto end = whole.tokens.begin() + static_cast<ptrdiff_t>(kept);
      resumed.choices[0].outputs.assign(whole.tokens.begin(), end);
      Harness harness(options);
      harness.Send(resumed);
      harness.RunFor(0);
      ExpectConstrained(TagModelOf(options.engine), submit, harness.answer(1));
    }
  }
}

TEST(ConstrainedEngine, ACompleteTextEndsWhateverMinTokensAndIgnoreEosSay) {
  const HarnessOptions options = Constrained();
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 20);
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "abcab");
  submit.sampling.min_tokens = 12;
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(TagText(harness.answer(1).tokens), "abcab");
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kStop);
  // A text that is cut says so.
  submit = harness.MakeSubmit(2, {1, 2, 3}, 1);
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "[x-z]{9}");
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(2).ended.at(0).reason, EndReason::kLength);
  harness.ExpectBooksBalance();
}

TEST(ConstrainedEngine, BansThatLeaveNoTokenAreNamed) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 20);
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "[a-c]+");
  submit.sampling.allowed_token_ids = {10, 11};
  harness.Send(submit);
  harness.RunFor(0);
  const Ended& end = harness.answer(1).ended.at(0);
  EXPECT_EQ(end.reason, EndReason::kFailed);
  EXPECT_FALSE(end.retryable);
  EXPECT_EQ(end.message,
            "constraint: no token that it allows is left after 0 tokens by allowed_token_ids; "
            "leave these out");
}

TEST(ConstrainedEngine, OutputsThatTheGrammarForbidsFailTheRequest) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 20);
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "[a-c]+");
  submit.choices[0].outputs = {0, 25};
  harness.Send(submit);
  harness.RunFor(0);
  const Ended& end = harness.answer(1).ended.at(0);
  EXPECT_EQ(end.reason, EndReason::kFailed);
  EXPECT_EQ(end.message, "constraint: the constraint does not allow the token with index 1");
  harness.ExpectBooksBalance();
}

TEST(ConstrainedEngine, LogprobsAreThoseOfTheRawRow) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 1);
  submit.sampling.logprobs = 1;
  submit.sampling.allowed_token_ids = {9};
  harness.Send(submit);
  submit = harness.MakeSubmit(2, {1, 2, 3}, 1);
  submit.sampling.logprobs = 1;
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "j");  // token 9
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(2).tokens, std::vector<TokenId>{9});
  EXPECT_EQ(harness.answer(1).logprobs, harness.answer(2).logprobs);
  EXPECT_LT(harness.answer(2).logprobs[0].at(0), -0.5f);
}

TEST(ConstrainedEngine, BeamSearchesAreRefusedByTheFieldsName) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 4);
  submit.sampling.beam_width = 2;
  submit.constraint = TagConstraints()[0];
  harness.Send(submit);
  harness.Once();
  const Refused& refused = harness.answer(1).refused.at(0);
  EXPECT_EQ(refused.code, RefusalCode::kInvalid);
  EXPECT_EQ(refused.field, "constraint");
}

TEST(ConstrainedEngine, StatesAreHeldToTheirMemory) {
  HarnessOptions options = Constrained();
  options.mask_bytes = 1;
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 4);
  submit.constraint = TagConstraints()[0];
  harness.Send(submit);
  harness.Send(harness.MakeSubmit(2, {1, 2, 3}, 4));
  harness.RunFor(0);
  EXPECT_NE(harness.answer(1).ended.at(0).message.find("the 1 bytes that this worker has"),
            std::string::npos)
      << harness.answer(1).ended.at(0).message;
  EXPECT_EQ(harness.answer(2).ended.at(0).reason, EndReason::kLength);
  EXPECT_EQ(harness.masks().bytes(), 0u);
}

// --- budgets of thoughts

std::shared_ptr<const ThoughtBudget> BudgetOf(std::mt19937_64& rng) {
  auto budget = std::make_shared<ThoughtBudget>();
  budget->tokens = static_cast<uint32_t>(rng() % 5);
  budget->opened = rng() % 2 == 0;
  budget->repeats = rng() % 2 == 0;
  for (TokenId token = 0; token < 30; ++token) budget->opens.push_back({token});
  budget->closes = {{40}, {41, 42}};
  budget->end = {12, 13, 14};
  return budget;
}

TEST(ThoughtBudgets, EqualTheReferenceAndResumeAtEveryIndex) {
  const HarnessOptions options = Constrained();
  size_t ended = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 rng(seed);
    Harness harness(options);
    Submit submit = harness.MakeSubmit(1, RandomPrompt(rng, 5), 16);
    submit.thought_budget = BudgetOf(rng);
    submit.choices.resize(2);
    submit.sampling.temperature = seed % 3 == 0 ? 0.0f : 1.0f;
    harness.Send(submit);
    harness.Send(harness.MakeSubmit(2, {1, 2, 3}, 16));  // a neighbour without one
    harness.RunFor(0);
    ExpectConstrained(TagModelOf(options.engine), submit, harness.answer(1));
    ExpectConstrained(TagModelOf(options.engine), harness.MakeSubmit(2, {1, 2, 3}, 16),
                      harness.answer(2));
    harness.ExpectBooksBalance();
    const std::vector<TokenId> whole = harness.answer(1).of(0);
    const auto& end = submit.thought_budget->end;
    ended += std::search(whole.begin(), whole.end(), end.begin(), end.end()) != whole.end();
    for (size_t kept = 1; kept <= whole.size(); ++kept) {
      Submit resumed = submit;
      resumed.choices[0].outputs = {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(kept)};
      Harness other(options);
      other.Send(resumed);
      other.RunFor(0);
      ExpectConstrained(TagModelOf(options.engine), submit, other.answer(1));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(ended, 6u);
}

TEST(ThoughtBudgets, BansOfTheirEndAreNamed) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 20);
  submit.thought_budget =
      std::make_shared<const ThoughtBudget>(ThoughtBudget{0, true, false, {}, {{40}}, {12}});
  submit.sampling.bad_words = {{12}};
  harness.Send(submit);
  harness.RunFor(0);
  const Ended& end = harness.answer(1).ended.at(0);
  EXPECT_EQ(end.reason, EndReason::kFailed);
  EXPECT_EQ(end.message,
            "thought_budget: what ends a thought is forbidden after 0 tokens by bad_words; leave "
            "these out");
}

TEST(ThoughtBudgets, WhatIsNotServedIsRefusedByTheFieldsName) {
  Harness harness(Constrained());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 4);
  submit.thought_budget =
      std::make_shared<const ThoughtBudget>(ThoughtBudget{0, true, false, {}, {}, {12}});
  Submit beams = submit;
  beams.sampling.beam_width = 2;
  beams.choices.resize(2);
  harness.Send(beams);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).refused.at(0).field, "thought_budget");
  beams = submit;
  beams.key.request = RequestNumber(2);
  beams.thought_budget =
      std::make_shared<const ThoughtBudget>(ThoughtBudget{0, true, false, {}, {}, {4000}});
  harness.Send(beams);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(2).refused.at(0).field, "thought_budget.end");
  Harness without(SmallEngine());
  without.Send(submit);
  without.RunFor(0);
  EXPECT_EQ(without.answer(1).refused.at(0).code, RefusalCode::kUnsupported);
  EXPECT_EQ(without.answer(1).refused.at(0).field, "thought_budget");
}

// --- while the grammar is being compiled

GrammarCommand Compiled(uint64_t request, uint64_t number, const Constraint& constraint) {
  return {
      RouterInstance(1), {RequestNumber(request), Attempt(1)}, number, TagGrammar(constraint), {}};
}

class CompilingTest : public testing::Test {
 protected:
  void SetUp() override {
    submit_ = harness_.MakeSubmit(1, {1, 2, 3}, 12);
    submit_.constraint = TagConstraints()[3];
    harness_.SendCompiling(submit_, 17, harness_.now_us + 1000);
  }
  void ExpectOver(EndReason reason) {
    harness_.RunFor(0);
    ASSERT_EQ(harness_.answer(1).ended.size(), 1u);
    EXPECT_EQ(harness_.answer(1).ended[0].reason, reason);
    EXPECT_EQ(harness_.last.load.held_blocks, 0u);
    EXPECT_EQ(harness_.last.load.waiting_requests, 0u);
    harness_.ExpectBooksBalance();
    // What comes too late is ignored.
    harness_.Apply(Compiled(1, 17, submit_.constraint));
    harness_.RunFor(0);
    EXPECT_EQ(harness_.answer(1).ended.size(), 1u);
  }

  Harness harness_{Constrained()};
  Submit submit_;
};

TEST_F(CompilingTest, ItWaitsWithoutPagesAndOthersRun) {
  harness_.Send(harness_.MakeSubmit(2, {1, 2, 3}, 4));
  harness_.RunFor(0);
  EXPECT_EQ(harness_.answer(2).ended.size(), 1u);
  EXPECT_EQ(harness_.answer(1).admitted, 0);
  EXPECT_EQ(harness_.last.load.held_blocks, 0u);
  harness_.Apply(Compiled(1, 16, submit_.constraint));  // another's
  harness_.RunFor(0);
  EXPECT_EQ(harness_.answer(1).admitted, 0);
  harness_.Apply(Compiled(1, 17, submit_.constraint));
  harness_.RunFor(0);
  ExpectConstrained(TagModelOf(harness_.options()), submit_, harness_.answer(1));
  harness_.ExpectBooksBalance();
}

TEST_F(CompilingTest, ARefusalLeavesNothing) {
  GrammarCommand command{RouterInstance(1), submit_.key, 17, nullptr, {}};
  command.refused.code = RefusalCode::kInvalid;
  command.refused.field = "constraint";
  command.refused.message = "constraint: /properties/a: no";
  harness_.Apply(command);
  harness_.RunFor(0);
  const Refused& refused = harness_.answer(1).refused.at(0);
  EXPECT_EQ(refused.field, "constraint");
  EXPECT_EQ(refused.message, "constraint: /properties/a: no");
  EXPECT_TRUE(harness_.answer(1).ended.empty());
  EXPECT_EQ(harness_.last.load.waiting_requests, 0u);
  harness_.ExpectBooksBalance();
  harness_.Send(submit_);  // the same attempt may come again
  harness_.RunFor(0);
  EXPECT_EQ(harness_.answer(1).ended.size(), 1u);
}

TEST_F(CompilingTest, ACancelEndsIt) {
  harness_.Cancel(1);
  ExpectOver(EndReason::kCancelled);
}

TEST_F(CompilingTest, ItsDeadlineEndsIt) {
  harness_.now_us += 1000;
  ExpectOver(EndReason::kDeadline);
}

TEST_F(CompilingTest, ADrainEndsIt) {
  harness_.Apply(DrainCommand{harness_.now_us + 100});
  ExpectOver(EndReason::kDrained);
}

TEST_F(CompilingTest, ARefusalAfterAChoicesEndFailsTheRest) {
  Submit submit = harness_.MakeSubmit(2, {1, 2, 3}, 12);
  submit.constraint = TagConstraints()[0];
  submit.choices.resize(2);
  harness_.SendCompiling(submit, 18);
  harness_.Apply(CancelCommand{RouterInstance(1), {submit.key, true, 0}});
  GrammarCommand command{RouterInstance(1), submit.key, 18, nullptr, {}};
  command.refused.code = RefusalCode::kInvalid;
  command.refused.message = "constraint: no";
  harness_.Apply(command);
  harness_.RunFor(0);
  ASSERT_EQ(harness_.answer(2).ended.size(), 2u);
  EXPECT_EQ(harness_.answer(2).ended[1].reason, EndReason::kFailed);
  EXPECT_EQ(harness_.answer(2).ended[1].message, "constraint: no");
  harness_.Cancel(1);
  harness_.RunFor(0);
  harness_.ExpectBooksBalance();
}

TEST_F(CompilingTest, AWorkerWithoutMasksRefusesConstraints) {
  Harness bare(SmallEngine());
  Submit submit = bare.MakeSubmit(1, {1, 2, 3}, 4);
  submit.constraint = TagConstraints()[0];
  bare.Send(submit);
  bare.Once();
  EXPECT_EQ(bare.answer(1).refused.at(0).code, RefusalCode::kUnsupported);
  EXPECT_EQ(bare.answer(1).refused.at(0).field, "constraint");
}

}  // namespace
}  // namespace quire::test
