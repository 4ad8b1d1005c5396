// Predictions of clients: fewer steps where they are right, and the same answers whatever they say.
#include <gtest/gtest.h>

#include "common/wire/features.h"
#include "tests/support/guess_drafter.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/draft/ngram_drafter.h"

namespace quire::test {
namespace {

// Steps in flight.
class PredictionTest : public testing::TestWithParam<int> {
 protected:
  HarnessOptions Drafting() {
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.max_choices = 4;
    options.engine.drafter = &drafter_;
    options.engine.max_drafts = 8;
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
  // A long ending looked for: what is drafted follows the prediction, or nothing does.
  NgramDrafter drafter_{{.min_tokens = 8, .max_tokens = 8}};
};

TEST_P(PredictionTest, ARightOneIsAcceptedInFullInFewerSteps) {
  const HarnessOptions options = Drafting();
  Harness harness(options);
  Submit submit = Long(harness);
  submit.sampling.logprobs = 3;
  const Answer solo = Solo(options, submit);
  submit.prediction_ids = solo.tokens;
  harness.Send(submit);
  harness.RunFor(10'000'000);
  const Answer& answer = harness.answer(1);
  EXPECT_EQ(answer.tokens, solo.tokens);
  EXPECT_EQ(answer.logprobs.at(0), solo.logprobs.at(0));
  ASSERT_EQ(answer.ended.size(), 1u);
  EXPECT_LE(harness.engine().totals().steps, 20u);
  EXPECT_GE(answer.accepted_predictions, 45u);
  EXPECT_EQ(answer.rejected_predictions, 0u);
  EXPECT_EQ(answer.accepted_predictions, answer.ended[0].usage.accepted_draft_tokens);
  harness.ExpectBooksBalance();
}

TEST_P(PredictionTest, AWrongOneChangesNothingButItsCounts) {
  const HarnessOptions options = Drafting();
  Harness harness(options);
  for (uint64_t request = 1; request <= 3; ++request) {
    Submit submit = Long(harness, request);
    const Answer solo = Solo(options, submit);
    std::vector<TokenId> wrong = solo.tokens;
    // All of it; its middle, behind which it is found again; what is longer than the answer.
    for (TokenId& token : wrong) {
      if (request == 1) token = (token + 1) % 63;
    }
    if (request == 2) wrong[20] = (wrong[20] + 1) % 63;
    if (request == 3) wrong.insert(wrong.end(), 200, 5);
    submit.prediction_ids = wrong;
    harness.Send(submit);
    harness.RunFor(10'000'000);
    const Answer& answer = harness.answer(request);
    EXPECT_EQ(answer.tokens, solo.tokens) << request;
    ASSERT_EQ(answer.ended.size(), 1u);
    const AttemptUsage& usage = answer.ended[0].usage;
    EXPECT_EQ(answer.accepted_predictions, usage.accepted_draft_tokens);
    EXPECT_EQ(answer.accepted_predictions + answer.rejected_predictions, usage.draft_tokens);
    if (request != 1) {
      EXPECT_GE(answer.accepted_predictions, 30u) << request;
    }
    if (request == 2) {
      EXPECT_GE(answer.rejected_predictions, 1u);
    }
  }
  harness.ExpectBooksBalance();
}

// Where every token takes a step's time again, and whatever became of the drafts of others.
TEST_P(PredictionTest, ItIsTriedOnceInFullBeforeItIsJudged) {
  HarnessOptions options = Drafting();
  options.step_micros = [](int64_t tokens) { return 1000 * tokens; };
  Harness harness(options);
  for (uint64_t request = 1; request <= 12; ++request) {
    Submit submit = Long(harness, request);
    submit.sampling.max_tokens = 20;  // a row without a prediction would not draft so soon
    const Answer solo = Solo(options, submit);
    const bool right = request == 12;
    std::vector<TokenId> predicted = solo.tokens;
    for (size_t i = 4; i < predicted.size() && !right; ++i) predicted[i] = (predicted[i] + 1) % 63;
    submit.prediction_ids = predicted;
    harness.Send(submit);
    harness.RunFor(10'000'000);
    const Answer& answer = harness.answer(request);
    EXPECT_EQ(answer.tokens, solo.tokens);
    EXPECT_GE(answer.accepted_predictions + answer.rejected_predictions, 8u) << request;
    if (right) {
      EXPECT_GE(answer.accepted_predictions, 8u);
    }
  }
  harness.ExpectBooksBalance();
}

TEST_P(PredictionTest, AStopInsideItEndsTheAnswer) {
  const HarnessOptions options = Drafting();
  Harness harness(options);
  Submit submit = Long(harness, 3);
  const std::vector<TokenId> whole = Solo(options, submit).tokens;
  submit.sampling.stop_token_ids = {whole[16]};
  const Answer solo = Solo(options, submit);
  submit.prediction_ids = whole;
  harness.Send(submit);
  harness.RunFor(10'000'000);
  EXPECT_EQ(harness.answer(3).tokens, solo.tokens);
  ASSERT_EQ(harness.answer(3).ended.size(), 1u);
  EXPECT_TRUE(harness.answer(3).ended[0].by_stop_token);
  EXPECT_LE(harness.answer(3).accepted_predictions, solo.tokens.size());
  harness.ExpectBooksBalance();
}

// A worker that goes on with an answer begins in the middle of the prediction.
TEST_P(PredictionTest, ItIsFollowedFromEveryOutputThatAnAnswerIsResumedAt) {
  const HarnessOptions options = Drafting();
  for (size_t resumed = 0; resumed < 60; resumed += 7) {
    Harness harness(options);
    Submit submit = Long(harness);
    const Answer solo = Solo(options, submit);
    submit.prediction_ids = solo.tokens;
    submit.choices[0].outputs.assign(solo.tokens.begin(),
                                     solo.tokens.begin() + static_cast<ptrdiff_t>(resumed));
    harness.Send(submit);
    harness.RunFor(10'000'000);
    EXPECT_EQ(harness.answer(1).tokens, solo.tokens) << resumed;
    EXPECT_EQ(harness.answer(1).rejected_predictions, 0u);
    if (resumed < 50) {
      EXPECT_GE(harness.answer(1).accepted_predictions, (60 - resumed) / 2) << resumed;
    }
    harness.ExpectBooksBalance();
  }
}

// Each follows it as far as its own outputs do.
TEST_P(PredictionTest, ChoicesShareIt) {
  const HarnessOptions options = Drafting();
  Harness harness(options);
  Submit submit = Long(harness);
  submit.choices.resize(3);
  Answer solo = Solo(options, submit);
  submit.prediction_ids = solo.of(1);
  harness.Send(submit);
  harness.RunFor(10'000'000);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(harness.answer(1).of(choice), solo.of(choice)) << choice;
  }
  EXPECT_GE(harness.answer(1).accepted_predictions, 30u);
  harness.ExpectBooksBalance();
}

// Without a prediction no output counts drafts; a worker without a drafter ignores a prediction.
TEST_P(PredictionTest, OnlyWhatIsPredictedIsTold) {
  HarnessOptions options = Drafting();
  NgramDrafter eager({.min_tokens = 1, .max_tokens = 2});
  options.engine.drafter = &eager;
  Harness harness(options);
  harness.Send(Long(harness));
  harness.RunFor(10'000'000);
  EXPECT_GT(harness.engine().totals().draft_tokens, 0u);
  EXPECT_EQ(harness.answer(1).accepted_predictions + harness.answer(1).rejected_predictions, 0u);

  options.engine.drafter = nullptr;
  Harness plain(options);
  Submit submit = Long(plain);
  submit.prediction_ids = harness.answer(1).tokens;
  plain.Send(submit);
  plain.RunFor(10'000'000);
  EXPECT_EQ(plain.answer(1).tokens, harness.answer(1).tokens);
  EXPECT_EQ(plain.answer(1).accepted_predictions, 0u);
}

// Sees how long the predictions of its rows are.
class LengthDrafter final : public Drafter {
 public:
  void Propose(std::span<const DraftRow> rows) override {
    for (const DraftRow& row : rows) longest = std::max(longest, row.prediction.size());
  }
  void Forget(uint64_t /*sequence*/) override {}
  bool UsesPredictions() const override { return true; }
  size_t longest = 0;
};

TEST(Predictions, AreKeptUpToTheLengthOfTheContext) {
  LengthDrafter drafter;
  HarnessOptions options = SmallEngine();
  options.engine.drafter = &drafter;
  options.engine.max_drafts = 2;
  const size_t context = static_cast<size_t>(options.engine.max_model_len);
  for (const size_t length : {context, context + 1, kMaxPredictionIds}) {
    Harness harness(options);
    Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 20);
    submit.prediction_ids = std::vector<TokenId>(length, 5);
    harness.Send(submit);
    harness.RunFor(10'000'000);
    EXPECT_EQ(harness.answer(1).tokens.size(), 20u);
    EXPECT_EQ(drafter.longest, context) << length;
  }
}

TEST(Predictions, AreServedWhereADrafterLooksAtThem) {
  const auto lists = [](Drafter* drafter) {
    EngineOptions options = SmallEngine().engine;
    options.drafter = drafter;
    return MissingFeature({std::string(kFeaturePrediction)}, ServedFeatures(options)).empty();
  };
  NgramDrafter looks({.min_tokens = 1, .max_tokens = 2});
  GuessDrafter guesses(0, 64);
  EXPECT_TRUE(lists(&looks));
  EXPECT_FALSE(lists(&guesses));
  EXPECT_FALSE(lists(nullptr));
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, PredictionTest, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
