// Attempt records: one per attempt, its phases, and sums that are the engine's totals.
#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/engine_driver.h"

namespace quire::test {
namespace {

HarnessOptions TimedEngine() {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  return options;
}

TEST(RecordTest, OneAttemptWithItsPhases) {
  HarnessOptions options = TimedEngine();
  options.engine.max_num_seqs = 1;
  Harness harness(options);
  Submit first = harness.MakeSubmit(1, std::vector<TokenId>(100, 3), 5);
  first.sampling.ignore_eos = true;
  first.request_id = "abc";
  first.tenant = "acme";
  first.traceparent = "of-a-trace";
  first.tracestate = "a=b";
  Submit second = harness.MakeSubmit(2, {1, 2, 3}, 1);
  second.sampling.ignore_eos = true;
  harness.Send(first);
  harness.Send(second);
  harness.RunFor(1'000'000);
  ASSERT_EQ(harness.records.size(), 2u);
  const AttemptRecord& record = harness.records[0];
  EXPECT_EQ(record.router, RouterInstance(1));
  EXPECT_EQ(record.key, (AttemptKey{RequestNumber(1), Attempt(1)}));
  EXPECT_EQ(record.request_id, "abc");
  EXPECT_EQ(record.tenant, "acme");
  EXPECT_EQ(record.traceparent + " " + record.tracestate, "of-a-trace a=b");
  EXPECT_EQ(record.choices, 1u);
  EXPECT_EQ(record.max_tokens, 5u);
  EXPECT_EQ(record.longest_tokens, 5u);
  EXPECT_EQ(record.reason, EndReason::kLength);
  EXPECT_EQ(record.usage.prompt_tokens, 100u);
  EXPECT_EQ(record.usage.generated_tokens, 5u);
  EXPECT_EQ(record.queue_us, 0);
  EXPECT_EQ(record.prefill_us, 2000);  // two chunks of at most 64 tokens
  EXPECT_EQ(record.decode_us, 4000);
  EXPECT_EQ(harness.records[1].queue_us, 6000);
  EXPECT_EQ(harness.records[1].prefill_us, 1000);
  EXPECT_EQ(harness.records[1].decode_us, 0);
  harness.ExpectBooksBalance();
}

TEST(RecordTest, PhasesThatWereNotReachedAreZero) {
  HarnessOptions options = TimedEngine();
  options.engine.max_num_seqs = 1;
  Harness harness(options);
  harness.Send(harness.MakeSubmit(1, std::vector<TokenId>(100, 3), 50));
  harness.Send(harness.MakeSubmit(2, {1, 2}, 5));
  harness.RunFor(500);
  harness.now_us += 500;
  harness.Cancel(2);  // still in the queue
  harness.Cancel(1);  // in prefill
  harness.RunFor(1'000'000);
  ASSERT_EQ(harness.records.size(), 2u);
  EXPECT_EQ(harness.records[0].key.request, RequestNumber(2));
  EXPECT_EQ(harness.records[0].reason, EndReason::kCancelled);
  EXPECT_GT(harness.records[0].queue_us, 0);
  EXPECT_EQ(harness.records[0].prefill_us + harness.records[0].decode_us, 0);
  EXPECT_EQ(harness.records[0].usage.computed_tokens, 0u);
  EXPECT_GT(harness.records[1].prefill_us, 0);
  EXPECT_EQ(harness.records[1].decode_us, 0);
  harness.ExpectBooksBalance();
}

// Nobody is told of these ends; the books are told all the same.
TEST(RecordTest, ALostRoutersAttemptsAreRecorded) {
  Harness harness(TimedEngine());
  for (uint64_t request = 1; request <= 5; ++request) {
    harness.Send(harness.MakeSubmit(request, {1, 2, 3}, 100));
  }
  harness.RunFor(10'000);
  harness.Apply(RouterLostCommand{RouterInstance(1)});
  harness.RunFor(100'000);
  ASSERT_EQ(harness.records.size(), 5u);
  for (const AttemptRecord& record : harness.records) {
    EXPECT_EQ(record.reason, EndReason::kRouterLost);
    EXPECT_GT(record.usage.generated_tokens, 0u);
  }
  EXPECT_TRUE(harness.answer(1).ended.empty());
  harness.ExpectBooksBalance();
}

TEST(RecordTest, ARefusedSubmitHasNone) {
  Harness harness(TimedEngine());
  harness.Send(harness.MakeSubmit(1, {}, 5));
  harness.RunFor(10'000);
  EXPECT_EQ(harness.answer(1).refused.size(), 1u);
  EXPECT_TRUE(harness.records.empty());
}

TEST(RecordTest, MergedOutputsKeepTheirRecords) {
  EngineOutput into;
  into.records.resize(1);
  EngineOutput from;
  from.records.resize(2);
  MergeOutput(into, std::move(from));
  EXPECT_EQ(into.records.size(), 3u);
}

}  // namespace
}  // namespace quire::test
