// Failover in the dispatcher: budgets, pacing, who goes first, silence, drain.
#include "tests/router/dispatch/dispatcher_fixture.h"

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

bool IsQueueFull(const pb::Submit&, pb::Refused* refused) {
  refused->set_code(pb::QUEUE_FULL);
  return true;
}

TEST_F(DispatcherTest, PlacementRetriesKeepToTheRoutersBudget) {
  options_.limits.placement_retry_burst = 4;
  options_.limits.placement_retry_percent = 0;
  options_.limits.max_placement_retries = 2;
  Start(4);
  for (const auto& worker : workers_) worker->refuse = IsQueueFull;
  Ask(1);
  Ask(2);
  Run(kSecond);
  EXPECT_EQ(dispatcher_->counters().placement_retries, 4u) << "two each";
  EXPECT_EQ(dispatcher_->counters().placement_retries_denied, 0u);
  Ask(3);
  Run(kSecond);
  EXPECT_EQ(dispatcher_->counters().placement_retries, 4u);
  EXPECT_EQ(dispatcher_->counters().placement_retries_denied, 1u) << "one above the limit";
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(listener_.failed[i].size(), 1u);
    EXPECT_EQ(listener_.failed[i][0].code, ApiCode::kUnavailable);
    EXPECT_GT(listener_.failed[i][0].retry_after_ms, 0u);
  }
}

TEST_F(DispatcherTest, WhatAPreemptedAttemptFoundWhenItCameBackStandsInItsReport) {
  Start(1);
  uint32_t in_the_end = 2;
  workers_[0]->tamper = [&in_the_end](pb::Step& step) {
    for (pb::Admitted& admitted : *step.mutable_admitted()) admitted.set_cached_tokens(1);
    for (pb::Ended& ended : *step.mutable_ended()) {
      ended.mutable_usage()->set_cached_tokens(in_the_end);
    }
  };
  for (uint64_t number = 1; number <= 3; ++number) {
    DispatchRequest request = Request(number, 3);
    request.submit.prompt_ids = {6, 6, 6, 6};
    dispatcher_->Start(request);
    Run(kSecond);
    ASSERT_EQ(listener_.attempts[number].size(), 1u);
    if (number == 1) in_the_end = 0;          // a worker does not take back what it told
    if (number == 2) in_the_end = 4'000'000;  // nor finds more than there is
  }
  EXPECT_EQ(listener_.attempts[1][0].cached_tokens, 2u);
  EXPECT_EQ(listener_.attempts[2][0].cached_tokens, 1u);
  EXPECT_EQ(listener_.attempts[3][0].cached_tokens, 4u);
}

TEST_F(DispatcherTest, ARefusedCarryOnIsOfferedAgainAndCostsNoBudget) {
  options_.limits.placement_retry_burst = 0;
  Start(2);
  Ask(1, 50);
  Run(100 * kMilli);
  FakeWorker& other = Idle();
  other.refuse = IsQueueFull;
  Running().Down();
  Run(kSecond);
  EXPECT_TRUE(listener_.failed.empty());
  EXPECT_EQ(dispatcher_->WaitingRequests(), 1u);
  other.refuse = nullptr;
  Run(kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 50u);
  EXPECT_EQ(dispatcher_->counters().placement_retries, 0u);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 1u);
  EXPECT_EQ(listener_.attempts[1].front().end, AttemptEnd::kLost);
  EXPECT_EQ(listener_.attempts[1][1].end, AttemptEnd::kRefused);
  EXPECT_EQ(listener_.attempts[1].back().end, AttemptEnd::kFinished);
}

// Ten answers under way, of 3 + some tokens each; at most 30 tokens may be computed again at once.
TEST_F(DispatcherTest, CarryOnsArePacedAndNewRequestsQueueBehindThem) {
  options_.limits.max_carry_on_tokens = 30;
  Start(2);
  for (uint64_t i = 1; i <= 10; ++i) Ask(i, 60);
  Run(100 * kMilli);
  FakeWorker& lost = *workers_[0];
  FakeWorker& survivor = *workers_[1];
  const size_t moved = lost.attempts.size();
  ASSERT_GE(moved, 4u);
  survivor.frozen = true;
  const size_t before = survivor.attempts.size();
  lost.Down();
  Run(20 * kMilli);
  const size_t at_once = survivor.attempts.size() - before;
  EXPECT_GE(at_once, 1u);
  EXPECT_LE(at_once, 3u) << "of about 10 tokens each";
  EXPECT_GT(dispatcher_->counters().carry_ons_paced, 0u);
  Ask(11);
  Run(100 * kMilli);
  EXPECT_FALSE(survivor.attempts.contains(11)) << "carry-ons go first";
  EXPECT_EQ(survivor.attempts.size() - before, at_once);
  survivor.frozen = false;
  Run(3 * kSecond);
  EXPECT_TRUE(listener_.failed.empty());
  for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(listener_.ids[i].size(), 60u) << i;
  EXPECT_EQ(TextOf(11), "abcdefghij");
  EXPECT_EQ(listener_.attempts[11].size(), 1u);
  // In the order of their submits: all ten were there before the new one.
  std::vector<uint64_t> order;
  for (const pb::RouterFrame& frame : survivor.heard) {
    if (frame.has_submit()) order.push_back(frame.submit().request_number());
  }
  EXPECT_EQ(order.back(), 11u);
}

TEST_F(DispatcherTest, ACarryOnPrefersTheSameBits) {
  Start(0);
  const auto add = [this](const std::string& name, const std::string& numerics) {
    FakeWorkerOptions one;
    one.worker_id = name;
    one.target = name + ":1";
    workers_.push_back(std::make_unique<FakeWorker>(world_, one));
    workers_.back()->tamper_hello = [numerics](pb::WorkerHello& hello) {
      hello.set_numerics_id(numerics);
    };
    ASSERT_TRUE(dispatcher_->AddWorker(one.target).ok());
    Run(500 * kMilli);
  };
  add("first", "cpu");
  Ask(1, 1000);
  Run(100 * kMilli);
  for (int i = 0; i < 3; ++i) add("gpu-" + std::to_string(i), "gpu");
  add("second", "cpu");
  workers_[0]->Down();
  Run(100 * kMilli);
  EXPECT_EQ(workers_[4]->attempts.size(), 1u);
  workers_[4]->Down();  // none of them is left: any will do
  Run(15 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 1000u);
  ASSERT_EQ(listener_.attempts[1].size(), 3u);
  EXPECT_FALSE(listener_.attempts[1][0].carry_on);
  EXPECT_TRUE(listener_.attempts[1][1].carry_on);
  EXPECT_FALSE(listener_.attempts[1][1].inexact);
  EXPECT_TRUE(listener_.attempts[1][2].inexact);
  EXPECT_EQ(dispatcher_->counters().carry_ons_inexact, 1u);
}

TEST_F(DispatcherTest, ExactCarryOnsWaitForTheSameBits) {
  options_.carry_on_mode = CarryOnMode::kExact;
  options_.limits.empty_pool_wait_ms = 60'000;
  Start(2);
  workers_[1]->tamper_hello = [](pb::WorkerHello& hello) { hello.set_numerics_id("other"); };
  workers_[1]->Down();
  Run(kSecond);
  Ask(1, 100);
  Run(100 * kMilli);
  workers_[1]->Up();
  Run(2 * kSecond);
  Ask(2, 300);
  Run(100 * kMilli);
  const bool was_there = workers_[0]->attempts.contains(2);
  workers_[0]->Down();
  Run(5 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 100u);
  EXPECT_EQ(dispatcher_->WaitingRequests(), was_there ? 1u : 0u);
  workers_[0]->Up();
  Run(10 * kSecond);
  EXPECT_EQ(listener_.ids[2].size(), 300u);
  EXPECT_EQ(dispatcher_->counters().carry_ons_inexact, 0u);
}

// Bits that depend on neighbours and timings are nobody's, their own worker's neither.
TEST_F(DispatcherTest, ACarryOnOfBitsThatVaryIsInexactEverywhere) {
  Start(2);
  for (const auto& worker : workers_) {
    worker->tamper_hello = [](pb::WorkerHello& hello) {
      hello.set_numerics_id("gpu/batch-variant");
    };
    worker->CloseStream();
  }
  Run(kSecond);
  Ask(1, 300);
  Run(100 * kMilli);
  Running().Down();
  Run(kSecond);
  const std::vector<AttemptReport>& reports = listener_.attempts[1];
  ASSERT_EQ(reports.size(), 1u);
  Running().Down();
  workers_[0]->Up();
  workers_[1]->Up();
  Run(15 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 300u);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_FALSE(reports[0].inexact);
  EXPECT_TRUE(reports[1].inexact && reports[2].inexact);
  EXPECT_EQ(dispatcher_->counters().carry_ons_inexact, 2u);
}

TEST_F(DispatcherTest, ExactCarryOnsGoNowhereWhereBitsVary) {
  options_.carry_on_mode = CarryOnMode::kExact;
  options_.limits.empty_pool_wait_ms = 5000;
  Start(1);
  workers_[0]->tamper_hello = [](pb::WorkerHello& hello) {
    hello.set_numerics_id("gpu/batch-variant");
  };
  workers_[0]->CloseStream();
  Run(kSecond);
  Ask(1, 300);
  Run(100 * kMilli);
  workers_[0]->Down();
  Run(kSecond);
  workers_[0]->Up();
  Run(15 * kSecond);
  EXPECT_LT(listener_.ids[1].size(), 300u);
  EXPECT_EQ(listener_.failed[1].size(), 1u);
  Ask(2);
  Run(kSecond);
  EXPECT_EQ(TextOf(2), "abcdefghij") << "new requests are taken";
}

// ---------------------------------------------------------------------------------- one id twice

TEST_F(DispatcherTest, TheSecondOfTwoWorkersWithOneIdIsRefusedUntilTheFirstIsGone) {
  Start(1);
  FakeWorkerOptions twin = workers_[0]->options();
  twin.target = "twin:1";
  workers_.push_back(std::make_unique<FakeWorker>(world_, twin));
  workers_[1]->tamper_hello = [](pb::WorkerHello& hello) { hello.set_epoch(77); };
  ASSERT_TRUE(dispatcher_->AddWorker(twin.target).ok());
  Run(5 * kSecond);
  EXPECT_EQ(workers_[1]->attaches, 1) << "it is not dialled again";
  EXPECT_EQ(dispatcher_->counters().links_of_duplicates, 1u);
  const WorkerRecord& refused = dispatcher_->fleet().worker(WorkerIndex(1));
  EXPECT_NE(refused.last_error.find("give one of them a --worker-id of its own"),
            std::string::npos);
  Ask(1);
  Run(kSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
  EXPECT_TRUE(workers_[1]->heard.empty() || !workers_[1]->heard.back().has_submit());
  workers_[0]->Down();
  Run(3 * kSecond);
  EXPECT_EQ(workers_[1]->attaches, 2);
  Ask(2);
  Run(kSecond);
  EXPECT_EQ(TextOf(2), "abcdefghij");
}

// ------------------------------------------------------------------------------------- silence

TEST_F(DispatcherTest, SilenceTakesHalfOfAPoolAtMost) {
  Start(4);
  for (uint64_t i = 1; i <= 8; ++i) Ask(i, 2000);
  Run(200 * kMilli);
  for (const auto& worker : workers_) worker->paused = true;
  Run(5 * kSecond);
  EXPECT_EQ(dispatcher_->counters().links_lost, 2u);
  EXPECT_EQ(dispatcher_->counters().silences_kept, 2u);
  Ask(9);
  Run(kSecond);
  EXPECT_TRUE(listener_.ids[9].empty());
  Run(kSecond);
  EXPECT_EQ(listener_.failed[9].size(), 1u) << "nobody takes new work";
  for (const auto& worker : workers_) worker->paused = false;
  Run(60 * kSecond);
  for (uint64_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(listener_.ids[i].size() + (listener_.failed[i].empty() ? 0 : 2000), 2000u) << i;
  }
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 0u);
}

// ------------------------------------------------------------------------------------- nobody

TEST_F(DispatcherTest, TheWaitCountsWhileNobodyIsThere) {
  options_.limits.empty_pool_wait_ms = 1000;
  FakeWorkerOptions small;
  small.max_waiting = 1;
  Start(1, small);
  workers_[0]->frozen = true;
  Ask(1);
  Ask(2);
  Run(10 * kSecond);
  EXPECT_TRUE(listener_.failed.empty()) << "it is busy, and there";
  workers_[0]->CloseStream();
  world_.StopListening(workers_[0]->options().target);
  Run(900 * kMilli);
  EXPECT_TRUE(listener_.failed.empty());
  Run(200 * kMilli);
  EXPECT_EQ(listener_.failed[1].size(), 1u);
  EXPECT_EQ(listener_.failed[2].size(), 1u);
  EXPECT_GT(listener_.failed[2][0].retry_after_ms, 0u);
}

TEST_F(DispatcherTest, AWorkerThatReturnedTakesWhatItHadFailedOn) {
  Start(2);
  Ask(1, 200);
  Run(100 * kMilli);
  FakeWorker& first = Running();
  FakeWorker& second = Idle();
  first.CloseStream();
  Run(500 * kMilli);  // it is back
  ASSERT_EQ(second.attempts.size(), 1u);
  second.Down();
  Run(5 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 200u);
}

// ------------------------------------------------------------------------------------- drain

TEST_F(DispatcherTest, ADrainingWorkerKeepsItsStreamsUntilItsTimeIsUp) {
  Start(2);
  Ask(1, 300);
  Run(100 * kMilli);
  FakeWorker& leaving = Running();
  FakeWorker& other = Idle();
  leaving.SayDraining(1000);
  Run(900 * kMilli);
  EXPECT_EQ(leaving.attempts.size(), 1u);
  Ask(2, 300);
  Run(50 * kMilli);
  EXPECT_EQ(other.attempts.size(), 1u) << "new work goes elsewhere";
  Run(200 * kMilli);
  EXPECT_TRUE(leaving.attempts.empty());
  EXPECT_EQ(other.attempts.size(), 2u);
  Run(5 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 300u);
  EXPECT_EQ(listener_.attempts[1].front().end, AttemptEnd::kDrained);
  EXPECT_EQ(listener_.attempts[1].back().end, AttemptEnd::kFinished);
  leaving.Down();
  leaving.Up();
  Run(5 * kSecond);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 0u);
}

TEST_F(DispatcherTest, WithNowhereToGoAStreamRunsOnAtTheDrainingWorker) {
  Start(2);
  Ask(1, 300);
  Run(100 * kMilli);
  FakeWorker& leaving = Running();
  FakeWorker& other = Idle();
  other.Down();
  leaving.SayDraining(500);
  Run(1500 * kMilli);
  EXPECT_EQ(leaving.attempts.size(), 1u);
  other.Up();
  Run(6 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 300u);
  EXPECT_TRUE(listener_.failed.empty());
}

}  // namespace
}  // namespace quire
