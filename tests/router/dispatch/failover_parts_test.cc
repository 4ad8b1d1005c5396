// The small machines behind a failover: budget, pacer, line, deaths, suspect prompts.
#include <gtest/gtest.h>

#include "router/dispatch/carry_on_pacer.h"
#include "router/dispatch/death_ledger.h"
#include "router/dispatch/retry_budget.h"
#include "router/dispatch/waiting_line.h"

namespace quire {
namespace {

constexpr WorkerIndex kA(0), kB(1), kC(2);

TEST(RetryBudget, GivesAShareOfTheRequestsAndABurst) {
  RetryBudget budget(10, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.TryTake());
  EXPECT_FALSE(budget.TryTake()) << "one above the burst";
  for (int i = 0; i < 9; ++i) budget.RequestStarted();
  EXPECT_FALSE(budget.TryTake());
  budget.RequestStarted();
  EXPECT_TRUE(budget.TryTake()) << "one for ten";
  EXPECT_FALSE(budget.TryTake());
  for (int i = 0; i < 1000; ++i) budget.RequestStarted();
  EXPECT_EQ(budget.available(), 3u) << "no more is saved";
}

TEST(RetryBudget, MayBeNone) {
  RetryBudget budget(0, 0);
  for (int i = 0; i < 1000; ++i) budget.RequestStarted();
  EXPECT_FALSE(budget.TryTake());
}

TEST(CarryOnPacer, KeepsToTheLimitPerWorker) {
  CarryOnPacer pacer(100);
  EXPECT_TRUE(pacer.MayStart(kB, 1000)) << "one alone may";
  pacer.Started(kB, 60);
  EXPECT_TRUE(pacer.MayStart(kB, 40));
  EXPECT_FALSE(pacer.MayStart(kB, 41));
  EXPECT_FALSE(pacer.MayStart(kB, UINT64_MAX));
  EXPECT_TRUE(pacer.MayStart(kA, 41));
  pacer.Started(kB, 40);
  pacer.Over(kB, 60);
  EXPECT_EQ(pacer.in_flight(kB), 40u);
  EXPECT_TRUE(pacer.MayStart(kB, 60));
}

TEST(WaitingLine, CarryOnsAndNewOnesEachByAge) {
  WaitingLine line;
  line.Add("m", RequestNumber(5), false);
  line.Add("m", RequestNumber(7), true);
  line.Add("m", RequestNumber(3), true);
  line.Add("m", RequestNumber(4), false);
  line.Add("k", RequestNumber(9), false);
  EXPECT_EQ(line.Pools(), (std::vector<std::string>{"k", "m"}));
  EXPECT_EQ(line.CarryOns("m"), (std::vector{RequestNumber(3), RequestNumber(7)}));
  EXPECT_EQ(line.Fresh("m"), (std::vector{RequestNumber(4), RequestNumber(5)}));
  EXPECT_EQ(line.size(), 5u);
  EXPECT_FALSE(line.Blocked("m"));
  line.SetBlocked("m", true);
  EXPECT_TRUE(line.Blocked("m"));
  EXPECT_FALSE(line.Blocked("k"));
  for (const uint64_t number : {5, 7, 3, 4}) line.Remove("m", RequestNumber(number));
  EXPECT_FALSE(line.Blocked("m")) << "nobody waits there any more";
  EXPECT_FALSE(line.Contains("m", RequestNumber(5)));
  line.SetBlocked("m", true);
  EXPECT_FALSE(line.Blocked("m"));
  line.Remove("k", RequestNumber(9));
  EXPECT_TRUE(line.empty());
}

constexpr PromptKey kP{1, 0}, kQ{2, 0}, kR{3, 0};
constexpr Micros kMinute = 60 * kMicrosPerSecond;

DeathLedger::Under Ran(std::vector<PromptKey> prompts, uint64_t outputs = 0) {
  DeathLedger::Under under;
  for (const PromptKey& prompt : prompts) under[prompt] = outputs;
  return under;
}

TEST(DeathLedger, ALossIsASuspicionUntilTheWorkerIsHeard) {
  DeathLedger ledger({});
  ledger.Lost(kA, Ran({kP, kQ}), 1);
  EXPECT_EQ(ledger.Of(kP).deaths, 0u);
  EXPECT_EQ(ledger.Of(kP).suspicions, 1u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kP).total(), 0u) << "the epoch returned";
  EXPECT_TRUE(ledger.empty());
  ledger.Lost(kA, Ran({kP}), 2);
  EXPECT_EQ(ledger.Died(kA), std::vector{kP});
  EXPECT_EQ(ledger.Of(kP).deaths, 1u);
  EXPECT_EQ(ledger.Of(kQ).total(), 0u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kP).deaths, 1u) << "that loss is closed";
}

TEST(DeathLedger, ACountMadeEarlyIsTakenBack) {
  DeathLedger ledger({});
  ledger.Lost(kA, Ran({kP}), 1);
  ledger.Lost(kB, Ran({kP}), 1);
  EXPECT_EQ(ledger.Refused(kA), std::vector{kP});
  EXPECT_TRUE(ledger.Refused(kA).empty()) << "once";
  EXPECT_EQ(ledger.Of(kP).deaths, 1u);
  EXPECT_EQ(ledger.Of(kP).suspicions, 1u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kP).deaths, 0u);
  EXPECT_TRUE(ledger.Refused(kC).empty()) << "nothing was lost there";
  EXPECT_EQ(ledger.Refused(kB), std::vector{kP});
  EXPECT_TRUE(ledger.Died(kB).empty()) << "the new epoch says nothing new";
  EXPECT_EQ(ledger.Of(kP).deaths, 1u);
  ledger.Stuck(Ran({kP}), 2);
  EXPECT_EQ(ledger.Of(kP).deaths, 2u);
}

TEST(DeathLedger, DeathsOutliveTheirRequestAndAreTakenBackThereToo) {
  DeathLedger ledger({.max_deaths = 2});
  ledger.Lost(kA, Ran({kP}), 1);
  ledger.Lost(kB, Ran({kP}), 2);
  ASSERT_TRUE(ledger.Hold(kP));
  ledger.Release(kP, 3);  // the client got its 503
  EXPECT_EQ(ledger.Of(kP).suspicions, 2u);
  EXPECT_EQ(ledger.Refused(kA), std::vector{kP});
  EXPECT_EQ(ledger.Refused(kB), std::vector{kP});
  EXPECT_TRUE(ledger.Refuses(kP, 4));
  ledger.Lives(kB);
  EXPECT_EQ(ledger.Of(kP).deaths, 1u);
  EXPECT_FALSE(ledger.Refuses(kP, 4)) << "one was none";
}

TEST(DeathLedger, WhatIsRefusedMayComeAgainAfterAWhile) {
  DeathLedger ledger({.max_deaths = 1, .remembered_for = 10 * kMinute});
  EXPECT_FALSE(ledger.Refuses(kP, 1));
  ledger.Stuck(Ran({kP}), 5);
  EXPECT_TRUE(ledger.Refuses(kP, 5 + 10 * kMinute - 1));
  EXPECT_FALSE(ledger.Refuses(kQ, 6));
  EXPECT_FALSE(ledger.Refuses(kP, 5 + 10 * kMinute));
  EXPECT_TRUE(ledger.empty());
}

TEST(DeathLedger, AHeldPromptIsNotForgotten) {
  DeathLedger ledger({.max_deaths = 3, .remembered_for = kMinute});
  ledger.Stuck(Ran({kP}), 1);
  ASSERT_TRUE(ledger.Hold(kP));
  ASSERT_TRUE(ledger.Hold(kP)) << "two requests with it";
  EXPECT_FALSE(ledger.Refuses(kQ, 10 * kMinute));
  EXPECT_EQ(ledger.Of(kP).deaths, 1u) << "a stream of hours keeps what it met";
  ledger.Release(kP, 10 * kMinute);
  EXPECT_EQ(ledger.Of(kP).deaths, 1u);
  ledger.Release(kP, 10 * kMinute);
  EXPECT_TRUE(ledger.empty());
}

TEST(DeathLedger, KeepsToItsLimit) {
  DeathLedger ledger({.max_deaths = 1, .max_remembered = 2});
  const auto met = [&ledger](const PromptKey& prompt, WorkerIndex worker, Micros now) {
    ledger.Lost(worker, Ran({prompt}), now);
    ASSERT_TRUE(ledger.Hold(prompt));
    ledger.Release(prompt, now);
  };
  met(kP, kA, 1);
  met(kQ, kB, 2);
  EXPECT_EQ(ledger.remembered(), 2u);
  EXPECT_EQ(ledger.forgotten(), 0u) << "at the limit";
  ledger.Stuck(Ran({kP}), 3);  // again: it is the youngest now
  met(kR, kC, 4);
  EXPECT_EQ(ledger.remembered(), 2u);
  EXPECT_EQ(ledger.forgotten(), 1u) << "one above it";
  EXPECT_EQ(ledger.Of(kQ).total(), 0u) << "the oldest gave way";
  EXPECT_TRUE(ledger.Died(kB).empty()) << "and its open loss with it";
  EXPECT_EQ(ledger.Of(kP).total(), 2u);
  EXPECT_EQ(ledger.Died(kC), std::vector{kR});
}

TEST(DeathLedger, WhatEndsWellAsFarOnIsInnocent) {
  DeathLedger ledger({});
  ledger.Lost(kA, Ran({kP}, 4), 1);
  ledger.Stuck(Ran({kP}, 3), 2);
  ASSERT_TRUE(ledger.Hold(kP));
  ledger.EndedWell(kP, 3);
  EXPECT_EQ(ledger.Of(kP).total(), 2u) << "it did not come to where workers died";
  ledger.EndedWell(kP, 4);
  EXPECT_EQ(ledger.Of(kP).total(), 0u);
  EXPECT_TRUE(ledger.Died(kA).empty());
  ledger.Release(kP, 3);
  EXPECT_TRUE(ledger.empty());
}

TEST(DeathLedger, KnowsAPromptByAllThatDecides) {
  Submit submit;
  submit.model_id = "m";
  submit.prompt_ids = {1, 2, 3};
  const PromptKey key = PromptKeyOf(submit);
  submit.sampling.max_tokens = 7;
  EXPECT_EQ(PromptKeyOf(submit), key);
  submit.salt = "of another tenant";
  EXPECT_NE(PromptKeyOf(submit), key);
  submit.salt.clear();
  submit.prompt_ids = {1, 2, 4};
  EXPECT_NE(PromptKeyOf(submit), key);
  submit.prompt_ids = {1, 2, 3};
  submit.model_id = "n";
  EXPECT_NE(PromptKeyOf(submit), key);
}

}  // namespace
}  // namespace quire
