// What becomes of one request: its ends, its books, its refusals; health of the idle and the busy
// engine.
#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

TEST(EngineTest, AnswersWithMaxTokensAndExactUsage) {
  Harness harness(SmallEngine());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3, 4, 5}, 7);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(0);
  const Answer& answer = harness.answer(1);
  EXPECT_EQ(answer.tokens.size(), 7u);
  EXPECT_EQ(answer.admitted, 1);
  ASSERT_EQ(answer.ended.size(), 1u);
  EXPECT_EQ(answer.ended[0].reason, EndReason::kLength);
  EXPECT_TRUE(answer.ended[0].last_choice);
  EXPECT_EQ(answer.ended[0].usage.prompt_tokens, 5u);
  EXPECT_EQ(answer.ended[0].usage.computed_tokens, 5u);
  EXPECT_EQ(answer.ended[0].usage.recomputed_tokens, 0u);
  EXPECT_EQ(answer.ended[0].usage.generated_tokens, 7u);
  EXPECT_EQ(answer.ended[0].usage.discarded_tokens, 0u);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  EXPECT_EQ(harness.last.load.running_rows, 0u);
}

TEST(EngineTest, StopTokenEndsAndIsDelivered) {
  const HarnessOptions options = SmallEngine();
  Harness first(options);
  Submit submit = first.MakeSubmit(1, {9, 8, 7}, 20);
  submit.sampling.ignore_eos = true;
  const Answer whole = Solo(options, submit);
  ASSERT_EQ(whole.tokens.size(), 20u);
  const TokenId stop = whole.tokens[5];
  size_t at = 0;
  while (whole.tokens[at] != stop) ++at;
  submit.sampling.stop_token_ids = {stop};
  first.Send(submit);
  first.RunFor(0);
  ASSERT_EQ(first.answer(1).ended.size(), 1u);
  const Ended& ended = first.answer(1).ended[0];
  EXPECT_EQ(ended.reason, EndReason::kStop);
  EXPECT_TRUE(ended.by_stop_token);
  EXPECT_EQ(ended.stop_token_id, stop);
  EXPECT_EQ(first.answer(1).tokens.size(), at + 1);
  EXPECT_EQ(first.answer(1).tokens.back(), stop);
}

TEST(EngineTest, MinTokensHoldsEndTokensBack) {
  HarnessOptions options = SmallEngine();
  for (TokenId id = 0; id < 60; ++id) options.engine.eos_token_ids.push_back(id);  // nearly all end
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2}, 30);
  submit.sampling.min_tokens = 6;
  harness.Send(submit);
  harness.RunFor(0);
  const Answer& answer = harness.answer(1);
  ASSERT_GT(answer.tokens.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(answer.tokens[i] >= 60 && answer.tokens[i] < 63) << answer.tokens[i];
  }
}

// Tokenizers that have grown beyond their model name such ends.
TEST(EngineTest, EndTokensOutsideTheVocabularyAreNone) {
  HarnessOptions options = SmallEngine();
  options.engine.eos_token_ids = {options.engine.vocab_size, 5'000};
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2}, 8);
  submit.sampling.min_tokens = 4;
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).tokens.size(), 8u);
}

TEST(EngineTest, ContextEndsAnAnswer) {
  Harness harness(SmallEngine());
  Submit submit = harness.MakeSubmit(1, std::vector<TokenId>(250, 3), 100);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).tokens.size(), 6u);
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kLength);
}

TEST(EngineTest, CancelFreesWithinOneRound) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, std::vector<TokenId>(40, 3), 100);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(5500);
  EXPECT_GT(harness.last.load.held_blocks, 0u);
  harness.Cancel(1);
  harness.Once();
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kCancelled);
  EXPECT_EQ(harness.answer(1).ended[0].usage.generated_tokens,
            harness.answer(1).tokens.size() + harness.answer(1).ended[0].usage.discarded_tokens);
  harness.RunFor(1000);  // the step that was in flight
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

TEST(EngineTest, CancelBeforeItRanAndOfUnknownRequests) {
  Harness harness(SmallEngine());
  harness.Cancel(77);
  harness.Send(harness.MakeSubmit(1, {1, 2, 3}, 5));
  harness.Cancel(1);
  harness.Once();
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].usage.computed_tokens, 0u);
  EXPECT_EQ(harness.answer(77).ended.size(), 0u);
}

TEST(EngineTest, FinishBooksWhatCameAfterAsDiscarded) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 100);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(10000);
  const uint32_t told = static_cast<uint32_t>(harness.answer(1).tokens.size());
  ASSERT_GT(told, 5u);
  harness.Apply(
      FinishCommand{RouterInstance(1), {{RequestNumber(1), Attempt(1)}, 0, EndReason::kStop, 4}});
  harness.Once();
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kStop);
  const AttemptUsage& usage = harness.answer(1).ended[0].usage;
  EXPECT_EQ(usage.generated_tokens - usage.discarded_tokens, 4u);
  EXPECT_EQ(usage.generated_tokens, told + 1);  // one was in flight
}

TEST(EngineTest, DeadlineInQueuePrefillAndDecode) {
  HarnessOptions options = SmallEngine();
  options.engine.max_num_seqs = 1;
  options.engine.max_num_batched_tokens = 4;
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  const int64_t start = harness.now_us;
  for (uint64_t request = 1; request <= 3; ++request) {
    Submit submit =
        harness.MakeSubmit(request, std::vector<TokenId>(20, static_cast<TokenId>(request)), 200);
    submit.sampling.ignore_eos = true;
    const int64_t after = request == 1 ? 20'000 : request == 2 ? 22'000 : 10'000;
    harness.Send(submit, start + after);
  }
  harness.Send(harness.MakeSubmit(4, {1}, 2), start);  // has passed already
  harness.RunFor(30'000);
  for (uint64_t request = 1; request <= 3; ++request) {
    ASSERT_EQ(harness.answer(request).ended.size(), 1u) << request;
    EXPECT_EQ(harness.answer(request).ended[0].reason, EndReason::kDeadline);
  }
  EXPECT_GT(harness.answer(1).tokens.size(), 0u);
  EXPECT_EQ(harness.answer(2).tokens.size(), 0u);  // in prefill
  EXPECT_GT(harness.answer(2).ended[0].usage.computed_tokens, 0u);
  EXPECT_EQ(harness.answer(3).ended[0].usage.computed_tokens, 0u);  // in the queue
  ASSERT_EQ(harness.answer(4).refused.size(), 1u);
  EXPECT_EQ(harness.answer(4).refused[0].code, RefusalCode::kDeadlinePassed);
}

TEST(EngineTest, RouterLostEndsItsRequestsSilentlyAndOnlyIts) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit mine = harness.MakeSubmit(1, {1, 2, 3}, 50);
  mine.sampling.ignore_eos = true;
  Submit other = harness.MakeSubmit(2, {4, 5, 6}, 50);
  other.sampling.ignore_eos = true;
  harness.Send(mine, kNeverMicros, RouterInstance(1));
  harness.Send(other, kNeverMicros, RouterInstance(2));
  harness.RunFor(5000);
  harness.Apply(RouterLostCommand{RouterInstance(1)});
  harness.RunFor(100'000);
  EXPECT_EQ(harness.answer(1).ended.size(), 0u);
  EXPECT_LT(harness.answer(1).tokens.size(), 10u);
  EXPECT_EQ(harness.answer(2).tokens.size(), 50u);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

TEST(EngineTest, WindowPausesGrantGoesOnAndSlowClientEnds) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3, 4, 5, 6}, 40);
  submit.sampling.ignore_eos = true;
  const Answer solo = Solo(options, submit);
  submit.initial_window = 5;
  harness.Send(submit);
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(1).tokens.size(), 5u);
  EXPECT_EQ(harness.last.load.running_rows, 0u);
  EXPECT_GT(harness.last.load.held_blocks, 0u);  // paused rows keep their blocks
  harness.GrantUpTo(1, 17);
  harness.GrantUpTo(1, 3);  // windows only grow
  harness.RunFor(1'000'000);
  ASSERT_EQ(harness.answer(1).tokens.size(), 17u);
  EXPECT_TRUE(
      std::equal(solo.tokens.begin(), solo.tokens.begin() + 17, harness.answer(1).tokens.begin()));
  harness.RunFor(40'000'000);
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kSlowClient);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

TEST(EngineTest, DrainHandsWaitingBackAndEndsTheRestAtItsDeadline) {
  HarnessOptions options = SmallEngine();
  options.engine.max_num_seqs = 1;
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  for (uint64_t request = 1; request <= 2; ++request) {
    Submit submit = harness.MakeSubmit(request, {1, 2, 3}, 200);
    submit.sampling.ignore_eos = true;
    harness.Send(submit);
  }
  harness.RunFor(5000);
  harness.Apply(DrainCommand{harness.now_us + 20'000});
  harness.Send(harness.MakeSubmit(3, {1}, 1));
  harness.Once();
  ASSERT_EQ(harness.answer(2).ended.size(), 1u);
  EXPECT_EQ(harness.answer(2).ended[0].reason, EndReason::kDrained);
  EXPECT_TRUE(harness.answer(2).ended[0].retryable);
  ASSERT_EQ(harness.answer(3).refused.size(), 1u);
  EXPECT_EQ(harness.answer(3).refused[0].code, RefusalCode::kDraining);
  EXPECT_FALSE(harness.last.drained);
  harness.RunFor(30'000);
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kDrained);
  EXPECT_TRUE(harness.answer(1).ended[0].retryable);
  EXPECT_GT(harness.answer(1).tokens.size(), 10u);
  EXPECT_TRUE(harness.last.drained);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

TEST(EngineTest, NotANumberFailsThatRequestAlone) {
  Harness harness(SmallEngine());
  Submit bad = harness.MakeSubmit(1, {1, 2, 3}, 10);
  bad.sampling.seed = 4711;
  harness.runner().program().SetNanSeed(4711);
  Submit good = harness.MakeSubmit(2, {1, 2, 3}, 10);
  good.sampling.ignore_eos = true;
  harness.Send(bad);
  harness.Send(good);
  harness.RunFor(0);
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kFailed);
  EXPECT_NE(harness.answer(1).ended[0].message.find("INTERNAL"), std::string::npos);
  EXPECT_EQ(harness.engine().totals().failed[static_cast<size_t>(FailureCause::kNotANumber)], 1u);
  EXPECT_EQ(harness.answer(2).tokens.size(), 10u);
}

TEST(EngineTest, IdleProbeKeepsHealthTruthfulOutsideTheBooks) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  harness.RunFor(20'000'000);
  EXPECT_GE(harness.runner().steps_launched(), 4);  // the canary, then one every five seconds
  EXPECT_LE(harness.runner().steps_launched(), 5);
  EXPECT_EQ(harness.progress().steps_total.load(), 0u);
  EXPECT_EQ(harness.last.load.steps_total, 0u);
  EXPECT_GT(harness.progress().last_step_end_us.load(), harness.now_us - 6'000'000);
}

TEST(EngineTest, AStepThatDoesNotEndIsSeen) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  harness.RunFor(10'000);
  harness.Send(harness.MakeSubmit(1, {1, 2, 3}, 10));
  harness.Once();
  harness.runner().DelayStep(1'000'000'000'000);
  EXPECT_EQ(harness.progress().running_since_us.load(), harness.now_us);
  EXPECT_GE(harness.progress().running_limit_us.load(), 2'000'000);
  harness.Cancel(1);
  harness.Once();
  EXPECT_EQ(harness.answer(1).ended.size(), 1u);  // told at once, although the step never ends
}

TEST(EngineTest, SnapshotOfAnEmptyCacheIsOneLastChunk) {
  Harness harness(SmallEngine());
  harness.Apply(SnapshotCommand{RouterInstance(5), 12});
  harness.Once();
  ASSERT_EQ(harness.last.snapshot_parts.size(), 1u);
  EXPECT_TRUE(harness.last.snapshot_parts[0].last);
  EXPECT_EQ(harness.last.snapshot_parts[0].snapshot_number, 12u);
  EXPECT_EQ(harness.last.snapshot_parts[0].router, RouterInstance(5));
}

TEST(EngineTest, MetricsFollowTheTotals) {
  Metrics metrics;
  EngineMetrics engine_metrics(metrics);
  engine_metrics.AddFieldNames(metrics, "demo");
  HarnessOptions options = SmallEngine();
  options.engine.metrics = &engine_metrics;
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 4);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  submit.key.request = RequestNumber(2);
  submit.prompt_ids = {};
  harness.Send(submit);
  harness.RunFor(0);
  harness.engine().ObservePass(30);
  const std::string text = metrics.Render();
  for (const char* line : {"quire_worker_step_seconds_count{phase=\"prefill\"} 1",
                           "quire_worker_step_seconds_count{phase=\"decode\"} 3",
                           "quire_worker_step_seconds_count{phase=\"host\"} 1",
                           "vllm:iteration_tokens_total_sum{model_name=\"demo\",engine=\"0\"} 6",
                           "vllm:iteration_tokens_total_count{model_name=\"demo\",engine=\"0\"} 4",
                           "quire_worker_generated_tokens_total 4", "quire_worker_attempts_total 1",
                           "quire_worker_prompt_tokens_total 3", "quire_worker_pages_held 0",
                           "quire_worker_choices_ended_total{reason=\"length\"} 1",
                           "quire_worker_refused_total{code=\"invalid\"} 1",
                           "quire_worker_failed_attempts_total{cause=\"not_a_number\"} 0",
                           "vllm:corrupted_requests_total{model_name=\"demo\",engine=\"0\"} 0"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  const EngineTotals& totals = harness.engine().totals();
  const auto shown = [&text](const auto& of, const auto& list) {
    for (const auto& counted : list) {
      const std::string line = std::string(counted.name) + " " + std::to_string(of.*counted.count);
      EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line;
    }
  };
  shown(totals, kEngineCounts);
  shown(totals.scheduler, kSchedulerCounts);
  shown(totals.cache, kCacheCounts);
  EXPECT_GT(totals.scheduler.computed_tokens, 0u);
  EXPECT_GT(totals.cache.queried_tokens, 0u);
}

// What a new count is: a member, and its line in the list beside it.
struct MadeUpTotals {
  uint64_t seen = 0;
  uint64_t unlisted = 0;
};
constexpr Counted<MadeUpTotals> kMadeUpCounts[] = {
    {&MadeUpTotals::seen, "made_up_seen_total", "made up"}};

TEST(Counted, ListedCountsAreAddedUp) {
  const MadeUpTotals sum = Sum(MadeUpTotals{2, 5}, MadeUpTotals{3, 7}, kMadeUpCounts);
  EXPECT_EQ(sum.seen, 5u);
  EXPECT_EQ(sum.unlisted, 5u);
}

TEST(EngineTest, LastAdmittedSubmitIsTold) {
  Harness harness(SmallEngine());
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 3);
  submit.submit_number = 41;
  harness.Send(submit);
  harness.Once();
  ASSERT_EQ(harness.last.routers.size(), 1u);
  EXPECT_EQ(harness.last.routers[0].last_admitted_submit, 41u);
}

}  // namespace
}  // namespace quire::test
