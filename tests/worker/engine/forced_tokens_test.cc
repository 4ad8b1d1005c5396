// Tokens that a grammar forces: they come in one step, and are those of one after the other.
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/engine/constrained_engine.h"
#include "worker/runner/step_masks.h"

namespace quire::test {
namespace {

constexpr const char kMostlyForced[] = "[a-c]xyzwvuxyzwvu[0-9]stutsutsut[a-c]";

TEST(ForcedTokens, TakeFewerStepsForTheSameAnswer) {
  std::vector<TokenId> tokens[2];
  std::map<uint32_t, std::vector<float>> logprobs[2];
  uint64_t steps[2] = {};
  for (const bool forced : {false, true}) {
    HarnessOptions options = Constrained();
    options.engine.forced_tokens = forced;
    Harness harness(options);
    Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 60);
    submit.constraint = ConstraintOf(ConstraintKind::kRegex, kMostlyForced);
    submit.sampling.logprobs = 2;
    submit.sampling.frequency_penalty = 0.5f;
    harness.Send(submit);
    harness.RunFor(0);
    const EngineTotals& totals = harness.engine().totals();
    tokens[forced] = harness.answer(1).tokens;
    logprobs[forced] = harness.answer(1).logprobs;
    steps[forced] = totals.steps;
    EXPECT_EQ(harness.answer(1).ended.at(0).reason, EndReason::kStop);
    // Of each run its first token is sampled as ever; it shows the others.
    EXPECT_EQ(totals.forced_tokens, forced ? 11u + 9 : 0u);
    EXPECT_EQ(totals.accepted_forced_tokens, totals.forced_tokens);
    EXPECT_EQ(totals.draft_tokens, 0u);
    EXPECT_EQ(harness.answer(1).ended[0].usage.draft_tokens, 0u);
    harness.ExpectBooksBalance();
  }
  EXPECT_EQ(tokens[1].size(), 25u);
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(logprobs[0], logprobs[1]);
  EXPECT_EQ(steps[0], steps[1] + 20);
}

// Limits, windows, stops, bans, the end of the grammar and resumes, at every place of a run.
TEST(ForcedTokens, EverythingMayEndInsideARun) {
  const HarnessOptions options = Constrained();
  Submit submit = Harness(options).MakeSubmit(1, {1, 2, 3}, 60);
  submit.constraint = ConstraintOf(ConstraintKind::kRegex, "[a-c]xyzwvutsrq");
  const ReferenceAnswer whole = TagAnswer(TagModelOf(options.engine), submit, 0, 0);
  ASSERT_EQ(whole.tokens.size(), 11u);
  for (size_t place = 1; place <= whole.tokens.size(); ++place) {
    Submit limited = submit;
    limited.sampling.max_tokens = static_cast<int32_t>(place);
    Submit stopped = submit;
    stopped.sampling.stop_token_ids = {whole.tokens[place - 1]};
    Submit late = stopped;  // and may not come sooner
    late.sampling.min_tokens = static_cast<int32_t>(place) - 1;
    Submit resumed = submit;
    const auto end = whole.tokens.begin() + static_cast<ptrdiff_t>(place);
    resumed.choices[0].outputs.assign(whole.tokens.begin(), end);
    Submit slow = submit;
    slow.initial_window = static_cast<uint32_t>(place);
    Submit forks = submit;
    forks.choices.resize(3);
    for (const Submit& one : {limited, stopped, late, resumed, forks}) {
      Harness harness(options);
      harness.Send(one);
      harness.RunFor(0);
      ExpectConstrained(TagModelOf(options.engine), one, harness.answer(1));
      harness.ExpectBooksBalance();
    }
    Harness harness(options);
    harness.Send(slow);
    harness.RunFor(0);
    EXPECT_EQ(harness.answer(1).tokens.size(), place);
    harness.GrantUpTo(1, 60);
    harness.RunFor(0);
    ExpectConstrained(TagModelOf(options.engine), submit, harness.answer(1));
    Submit banned = submit;
    banned.sampling.bad_words = {{whole.tokens[place - 1]}};
    if (place == 1) continue;  // there are others
    Harness bans(options);
    bans.Send(banned);
    bans.RunFor(0);
    EXPECT_EQ(bans.answer(1).tokens.size(), place - 1);
    EXPECT_EQ(bans.answer(1).ended.at(0).message,
              "constraint: no token that it allows is left after " + std::to_string(place - 1) +
                  " tokens by bad_words; leave these out");
  }
}

}  // namespace
}  // namespace quire::test
