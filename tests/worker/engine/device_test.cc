// A device that is lost: every attempt ends once, the books balance, and what comes back begins
// empty.
#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/engine_driver.h"

namespace quire::test {
namespace {

HarnessOptions TimedEngine(int max_in_flight) {
  HarnessOptions options = SmallEngine();
  options.max_in_flight = max_in_flight;
  options.engine.max_choices = 4;
  options.step_micros = [](int64_t tokens) { return 1'000 + tokens; };
  return options;
}

std::vector<TokenId> Undisturbed(uint64_t request) {
  Harness harness(TimedEngine(1));
  Submit submit = harness.MakeSubmit(request, {1, 2, 3, 4, 5, 6, 7}, 20);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.RunFor(1'000'000);
  return harness.answer(request).tokens;
}

class LostDevice : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(InFlight, LostDevice, testing::Values(1, 2));

TEST_P(LostDevice, EndsAllAttemptsAsRetryableAndBeginsAnew) {
  Harness harness(TimedEngine(GetParam()));
  for (uint64_t request = 1; request <= 12; ++request) {  // more than there are rows
    Submit submit = harness.MakeSubmit(request, {1, 2, 3, 4, 5, 6, 7}, 20);
    submit.sampling.ignore_eos = true;
    if (request == 5) submit.choices.resize(3);
    harness.Send(submit);
  }
  harness.RunFor(7'000);
  ASSERT_FALSE(harness.answer(1).tokens.empty());
  ASSERT_TRUE(harness.answer(1).ended.empty());
  harness.runner().Lose(3);
  harness.Once();
  EXPECT_TRUE(harness.last.device_lost);
  EXPECT_EQ(harness.last.devices_lost, 1u);
  for (uint64_t request = 1; request <= 12; ++request) {
    const Answer& answer = harness.answer(request);
    ASSERT_EQ(answer.ended.size(), request == 5 ? 3u : 1u) << request;
    EXPECT_EQ(answer.ended[0].reason, EndReason::kFailed);
    EXPECT_TRUE(answer.ended[0].retryable);
    EXPECT_NE(answer.ended[0].message.find("UNAVAILABLE"), std::string::npos);
  }
  EXPECT_EQ(harness.engine().totals().failed[static_cast<size_t>(FailureCause::kDeviceLost)], 12u);
  harness.ExpectBooksBalance();
  // Until a step has been computed nobody is let in, and the engine does not spin.
  EXPECT_GT(harness.last.next_wakeup_us, harness.now_us);
  harness.Send(harness.MakeSubmit(20, {1, 2, 3}, 3));
  harness.Once();
  ASSERT_EQ(harness.answer(20).refused.size(), 1u);
  EXPECT_EQ(harness.answer(20).refused[0].code, RefusalCode::kNotReady);
  for (int round = 0; round < 100 && harness.last.device_lost; ++round) {
    harness.now_us = std::max(harness.now_us, harness.last.next_wakeup_us);
    harness.Once();
  }
  EXPECT_FALSE(harness.last.device_lost);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  EXPECT_EQ(harness.last.load.evictable_blocks, 0u);
  EXPECT_EQ(harness.last.event_seq, 0u);
  // The same request gets the tokens that it would have got.
  Submit again = harness.MakeSubmit(1, {1, 2, 3, 4, 5, 6, 7}, 20);
  again.key.request = RequestNumber(30);
  again.sampling.ignore_eos = true;
  harness.Send(again);
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(30).tokens, Undisturbed(1));
  EXPECT_EQ(harness.answer(30).admission.cached_tokens, 0u);
  harness.ExpectBooksBalance();
}

TEST_P(LostDevice, WhileIdleOrTwiceOrWhileDraining) {
  Harness harness(TimedEngine(GetParam()));
  harness.RunFor(10'000);
  harness.runner().Lose();
  harness.Once();
  EXPECT_TRUE(harness.last.device_lost);
  harness.now_us += 20'000;
  harness.Once();  // it is back, and the probe runs
  EXPECT_TRUE(harness.last.device_lost);
  harness.runner().Lose(2);
  harness.Once();
  EXPECT_EQ(harness.last.devices_lost, 2u);
  harness.RunFor(100'000);
  EXPECT_FALSE(harness.last.device_lost);
  harness.Send(harness.MakeSubmit(1, {1, 2, 3}, 3));
  harness.RunFor(100'000);
  EXPECT_EQ(harness.answer(1).tokens.size(), 3u);
  harness.runner().Lose(1'000'000);
  harness.Apply(DrainCommand{harness.now_us + 1});
  harness.Once();
  EXPECT_TRUE(harness.last.drained);
}

TEST(LostDevice, OutputsThatAreMergedTellOfBoth) {
  EngineOutput early;
  early.event_seq = 9;
  early.first_event_seq = 9;
  early.events.resize(1);
  EngineOutput late;
  late.devices_lost = 1;
  late.event_seq = 2;
  late.first_event_seq = 1;
  late.events.resize(2);
  MergeOutput(early, late);
  EXPECT_EQ(early.event_seq, 2u);
  EXPECT_EQ(early.first_event_seq, 1u);
  EXPECT_EQ(early.events.size(), 2u);
  EXPECT_EQ(early.devices_lost, 1u);
}

}  // namespace
}  // namespace quire::test
