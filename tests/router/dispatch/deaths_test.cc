// Deaths of workers in the dispatcher: which are counted, and the prompts that are suspected of
// them.
#include "tests/router/dispatch/dispatcher_fixture.h"

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

// Kills its worker as soon as the poisonous request has its fifth token there. Restarts it later.
class PoisonTest : public DispatcherTest {
 protected:
  void Poison(uint64_t number, Micros restart_after) {
    for (const auto& worker : workers_) {
      FakeWorker* victim = worker.get();
      victim->tamper = [this, victim, number, restart_after](pb::Step& step) {
        for (const pb::Output& output : step.outputs()) {
          if (output.request_number() != number || output.first_index() < 4) continue;
          if (output.attempt() != last_attempt_) ++deaths_;
          last_attempt_ = output.attempt();
          step.clear_outputs();
          world_.executor().Post([victim] { victim->Down(); });
          world_.executor().PostAt(world_.clock().Now() + restart_after,
                                   [victim] { victim->Up(); });
          return;
        }
      };
    }
  }
  int deaths_ = 0;
  uint32_t last_attempt_ = 0;
};

TEST_F(PoisonTest, ARequestThatKillsEveryWorkerIsGivenUpAfterThree) {
  Start(6);
  DispatchRequest poison = Request(1000, 50);
  poison.submit.prompt_ids = {6, 6, 6};
  Poison(1000, 700 * kMilli);
  for (uint64_t i = 1; i <= 50; ++i) Ask(i, 40);
  dispatcher_->Start(poison);
  Run(30 * kSecond);
  EXPECT_LE(deaths_, 3);
  ASSERT_EQ(listener_.failed[1000].size(), 1u);
  EXPECT_EQ(listener_.failed[1000][0].code, ApiCode::kInternal);
  EXPECT_EQ(listener_.failed[1000][0].reason, "request_suspect");
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(TextOf(i), "abcdefghijklmnopqrstuvwxyzabcdefghijklmn") << i;
  }
  EXPECT_EQ(dispatcher_->counters().requests_suspect, 1u);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 3u);

  // The same prompt again, with other words around it, and another prompt.
  poison.number = RequestNumber(1001);
  poison.submit.sampling.max_tokens = 3;
  dispatcher_->Start(poison);
  Ask(1002, 3);
  EXPECT_TRUE(listener_.failed[1001].empty()) << "never inside the call";
  Run(kSecond);
  ASSERT_EQ(listener_.failed[1001].size(), 1u);
  EXPECT_EQ(listener_.failed[1001][0].reason, "request_suspect");
  EXPECT_EQ(TextOf(1002), "abc");
  Run(600 * kSecond);
  poison.number = RequestNumber(1003);
  dispatcher_->Start(poison);
  Run(kSecond);
  EXPECT_EQ(TextOf(1003), "abc") << "after ten minutes it may come again";
}

// Its client asks again after each end that tells it to come back.
TEST_F(PoisonTest, AClientThatAsksAgainGoesOnWithTheDeathsOfItsPrompt) {
  options_.limits.empty_pool_wait_ms = 500;
  Start(1);
  uint64_t deaths = 0;
  uint64_t asks = 0;
  workers_[0]->tamper = [&](pb::Step& step) {
    for (const pb::Output& output : step.outputs()) {
      if (output.first_index() < 4) continue;
      ++deaths;
      step.clear_outputs();
      world_.executor().Post([this] { workers_[0]->Down(); });
      world_.executor().PostAt(world_.clock().Now() + 3 * kSecond, [this] { workers_[0]->Up(); });
      return;
    }
  };
  std::vector<ApiCode> ends;
  while (asks < 8) {
    const uint64_t number = ++asks;
    DispatchRequest poison = Request(number, 50);
    poison.submit.prompt_ids = {6, 6, 6};
    dispatcher_->Start(poison);
    while (listener_.failed[number].empty()) Run(100 * kMilli);
    ends.push_back(listener_.failed[number][0].code);
    if (listener_.failed[number][0].reason == "request_suspect") break;
    Run(6 * kSecond);  // a worker is back
  }
  EXPECT_EQ(deaths, 3u);
  EXPECT_EQ(ends, (std::vector{ApiCode::kUnavailable, ApiCode::kUnavailable, ApiCode::kInternal}));
  Run(6 * kSecond);
  DispatchRequest again = Request(99, 50);
  again.submit.prompt_ids = {6, 6, 6};
  dispatcher_->Start(again);
  Run(kSecond);
  ASSERT_EQ(listener_.failed[99].size(), 1u);
  EXPECT_EQ(listener_.failed[99][0].reason, "request_suspect");
  EXPECT_EQ(deaths, 3u);
  EXPECT_EQ(dispatcher_->counters().suspect_prompts_refused, 1u);
  EXPECT_EQ(dispatcher_->deaths().remembered(), 1u);
  workers_[0]->tamper = nullptr;
  Run(600 * kSecond);
  Ask(100);
  Run(kSecond);
  EXPECT_EQ(TextOf(100), "abcdefghij");
}

TEST_F(PoisonTest, RequestsWithOnePromptAreGivenUpTogether) {
  Start(6);
  Poison(1000, 700 * kMilli);
  for (uint64_t number = 1000; number < 1004; ++number) {
    DispatchRequest poison = Request(number, 50);
    poison.submit.prompt_ids = {6, 6, 6};
    dispatcher_->Start(poison);
  }
  Run(30 * kSecond);
  EXPECT_LE(deaths_, 3);
  EXPECT_EQ(listener_.failed[1000].size(), 1u);
  EXPECT_TRUE(dispatcher_->deaths().remembered() <= 1);
}

// Eight copies at eight workers, each about to kill its own.
TEST_F(PoisonTest, CopiesThatRunElsewhereAreTakenBackWhenTheirPromptIsSuspect) {
  constexpr uint64_t kFirst = 1000, kCopies = 8;
  Start(kCopies);
  int deaths = 0;
  for (const auto& worker : workers_) {
    FakeWorker* victim = worker.get();
    victim->tamper = [this, victim, &deaths](pb::Step& step) {
      for (const pb::Output& output : step.outputs()) {
        if (output.request_number() < kFirst || output.first_index() < 4) continue;
        ++deaths;
        step.clear_outputs();
        world_.executor().Post([victim] { victim->Down(); });
        world_.executor().PostAt(world_.clock().Now() + 700 * kMilli, [victim] { victim->Up(); });
        return;
      }
    };
  }
  for (uint64_t i = 1; i <= 20; ++i) Ask(i, 40);
  for (uint64_t number = kFirst; number < kFirst + kCopies; ++number) {
    DispatchRequest poison = Request(number, 50);
    poison.submit.prompt_ids = {6, 6, 6};
    dispatcher_->Start(poison);
    Run(12 * kMilli);  // a step of the workers takes 10 ms
  }
  Run(30 * kSecond);
  EXPECT_EQ(deaths, 3);
  for (uint64_t number = kFirst; number < kFirst + kCopies; ++number) {
    ASSERT_EQ(listener_.failed[number].size(), 1u) << number;
    EXPECT_EQ(listener_.failed[number][0].reason, "request_suspect") << number;
  }
  for (uint64_t i = 1; i <= 20; ++i) {
    EXPECT_EQ(TextOf(i), "abcdefghijklmnopqrstuvwxyzabcdefghijklmn") << i;
  }
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 3u);
}

// One death is known; eight more copies come in one moment, each about to kill its worker.
TEST_F(PoisonTest, AfterADeathNoMoreWorkersHaveAPromptAtOnceThanItMayStillCost) {
  constexpr uint64_t kFirst = 1000, kCopies = 9;
  Start(kCopies);
  std::set<const FakeWorker*> dead;
  int deaths = 0;
  for (const auto& worker : workers_) {
    FakeWorker* victim = worker.get();
    victim->tamper = [this, victim, &dead, &deaths](pb::Step& step) {
      for (const pb::Output& output : step.outputs()) {
        if (output.request_number() < kFirst || output.first_index() < 4) continue;
        deaths += dead.insert(victim).second ? 1 : 0;
        step.clear_outputs();
        world_.executor().Post([victim] { victim->Down(); });
        world_.executor().PostAt(world_.clock().Now() + 700 * kMilli, [victim, &dead] {
          dead.erase(victim);
          victim->Up();
        });
        return;
      }
    };
  }
  for (uint64_t i = 1; i <= 20; ++i) Ask(i, 40);
  for (uint64_t number = kFirst; number < kFirst + kCopies; ++number) {
    DispatchRequest poison = Request(number, 50);
    poison.submit.prompt_ids = {6, 6, 6};
    dispatcher_->Start(poison);
    if (number == kFirst) Run(200 * kMilli);
    dispatcher_->CheckInvariants();
  }
  Run(30 * kSecond);
  EXPECT_EQ(deaths, 3);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 3u);
  for (uint64_t number = kFirst; number < kFirst + kCopies; ++number) {
    ASSERT_EQ(listener_.failed[number].size(), 1u) << number;
    EXPECT_EQ(listener_.failed[number][0].reason, "request_suspect") << number;
  }
  for (uint64_t i = 1; i <= 20; ++i) {
    EXPECT_EQ(TextOf(i), "abcdefghijklmnopqrstuvwxyzabcdefghijklmn") << i;
  }
}

// Copies of a prompt that is none: what is taken back goes on from its journal, one after another.
TEST_F(PoisonTest, CopiesThatWereTakenBackLoseNothing) {
  Start(6);
  for (uint64_t number = 1; number <= 6; ++number) {
    DispatchRequest copy = Request(number, 40);
    copy.submit.prompt_ids = {7, 7, 7};
    dispatcher_->Start(copy);
  }
  Run(100 * kMilli);
  size_t busy = 0;
  for (const auto& worker : workers_) busy += worker->attempts.empty() ? 0 : 1;
  ASSERT_GE(busy, 4u);
  for (int death = 0; death < 2; ++death) {
    Running().Down();
    Run(20 * kMilli);
  }
  size_t left = 0;
  for (const auto& worker : workers_) left += worker->attempts.size();
  EXPECT_EQ(left, 1u) << "one runs";
  size_t withdrawn = 0;
  for (const auto& [number, reports] : listener_.attempts) {
    withdrawn += reports.back().end == AttemptEnd::kWithdrawn ? 1 : 0;
  }
  EXPECT_GE(withdrawn, 1u);
  Run(30 * kSecond);
  for (uint64_t number = 1; number <= 6; ++number) {
    EXPECT_EQ(TextOf(number), "abcdefghijklmnopqrstuvwxyzabcdefghijklmn") << number;
  }
}

TEST_F(PoisonTest, AtTwoDeathsOneRunsAtATime) {
  Start(1);
  FakeWorker& worker = *workers_[0];
  worker.frozen = true;
  for (uint64_t i = 1; i <= 3; ++i) Ask(i, 10);
  for (int death = 0; death < 2; ++death) {
    Run(50 * kMilli);
    EXPECT_EQ(worker.attempts.size(), 3u) << "together, after " << death << " deaths";
    worker.Down();
    worker.Up();
    Run(300 * kMilli);
  }
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 2u);
  worker.frozen = false;
  size_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    Run(5 * kMilli);
    most = std::max(most, worker.attempts.size());
  }
  EXPECT_EQ(most, 1u);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(TextOf(i), "abcdefghij");
}

TEST_F(DispatcherTest, LinksThatBreakAreNoDeaths) {
  Start(3);
  Ask(1, 400);
  for (int i = 0; i < 12; ++i) {
    Run(250 * kMilli);
    if (dispatcher_->LiveRequests() == 0) break;
    Running().CloseStream();
  }
  Run(5 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 400u);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 0u);
  EXPECT_GE(dispatcher_->counters().carry_ons, 10u);
}

TEST_F(DispatcherTest, ADeathCountedEarlyIsTakenBack) {
  Start(1);
  world_.StopListening(workers_[0]->options().target);
  workers_[0]->CloseStream();
  Run(kSecond);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 1u) << "its address refuses connections";
  workers_[0]->ListenAgain();
  Run(6 * kSecond);
  EXPECT_EQ(dispatcher_->counters().worker_deaths_taken_back, 1u);
  Ask(1);
  Run(kSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
}

TEST_F(DispatcherTest, AStuckStepIsADeath) {
  Start(2);
  Ask(1, 50);
  Run(100 * kMilli);
  FakeWorker& stuck = Running();
  stuck.frozen = true;
  stuck.step_age_ms = 5000;
  Run(5 * kSecond);
  EXPECT_EQ(listener_.ids[1].size(), 50u);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 1u);
  stuck.Down();
  stuck.frozen = false;
  stuck.step_age_ms = 0;
  stuck.Up();
  Run(5 * kSecond);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 1u) << "the same one";
}

}  // namespace
}  // namespace quire
