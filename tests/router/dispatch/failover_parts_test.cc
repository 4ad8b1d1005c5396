// The small machines behind a failover: budget, pacer, line, deaths, suspect prompts.
#include <gtest/gtest.h>

#include "router/dispatch/carry_on_pacer.h"
#include "router/dispatch/death_ledger.h"
#include "router/dispatch/retry_budget.h"
#include "router/dispatch/suspect_prompts.h"
#include "router/dispatch/waiting_line.h"

namespace quire {
namespace {

constexpr WorkerIndex kA(0), kB(1), kC(2);
constexpr RequestNumber kOne(1), kTwo(2);

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

TEST(DeathLedger, ALossIsASuspicionUntilTheWorkerIsHeard) {
  DeathLedger ledger;
  ledger.Lost(kA, {kOne, kTwo});
  EXPECT_EQ(ledger.Of(kOne).deaths, 0u);
  EXPECT_EQ(ledger.Of(kOne).suspicions, 1u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kOne).total(), 0u) << "the epoch returned";
  ledger.Lost(kA, {kOne});
  EXPECT_EQ(ledger.Died(kA), std::vector{kOne});
  EXPECT_EQ(ledger.Of(kOne).deaths, 1u);
  EXPECT_EQ(ledger.Of(kTwo).total(), 0u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kOne).deaths, 1u) << "that loss is closed";
  ledger.Forget(kOne);
  EXPECT_TRUE(ledger.empty());
}

TEST(DeathLedger, ACountMadeEarlyIsTakenBack) {
  DeathLedger ledger;
  ledger.Lost(kA, {kOne});
  ledger.Lost(kB, {kOne});
  EXPECT_EQ(ledger.Refused(kA), std::vector{kOne});
  EXPECT_TRUE(ledger.Refused(kA).empty()) << "once";
  EXPECT_EQ(ledger.Of(kOne).deaths, 1u);
  EXPECT_EQ(ledger.Of(kOne).suspicions, 1u);
  ledger.Lives(kA);
  EXPECT_EQ(ledger.Of(kOne).deaths, 0u);
  EXPECT_TRUE(ledger.Refused(kC).empty()) << "nothing was lost there";
  EXPECT_EQ(ledger.Refused(kB), std::vector{kOne});
  EXPECT_TRUE(ledger.Died(kB).empty()) << "the new epoch says nothing new";
  EXPECT_EQ(ledger.Of(kOne).deaths, 1u);
  ledger.Stuck({kOne});
  EXPECT_EQ(ledger.Of(kOne).deaths, 2u);
}

TEST(DeathLedger, ForgetsWithOpenLosses) {
  DeathLedger ledger;
  ledger.Lost(kA, {kOne, kTwo});
  ledger.Lost(kB, {kOne});
  ledger.Forget(kOne);
  EXPECT_TRUE(ledger.Died(kB).empty());
  EXPECT_EQ(ledger.Died(kA), std::vector{kTwo});
  ledger.Forget(kTwo);
  EXPECT_TRUE(ledger.empty());
}

Submit PromptOf(TokenId id, const std::string& salt = "") {
  Submit submit;
  submit.model_id = "m";
  submit.salt = salt;
  submit.prompt_ids = {1, 2, id};
  return submit;
}

TEST(SuspectPrompts, AreRefusedForAWhile) {
  SuspectPrompts prompts(2, 10 * kMicrosPerSecond);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(1), 5), 0);
  prompts.Add(PromptOf(1), 5);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(1), 6), 10 * kMicrosPerSecond - 1);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(2), 6), 0);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(1, "of another tenant"), 6), 0);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(1), 5 + 10 * kMicrosPerSecond), 0);
}

TEST(SuspectPrompts, AreBounded) {
  SuspectPrompts prompts(2, 10 * kMicrosPerSecond);
  prompts.Add(PromptOf(1), 1);
  prompts.Add(PromptOf(2), 2);
  prompts.Add(PromptOf(1), 3);  // again: it is the youngest now
  EXPECT_EQ(prompts.size(), 2u);
  prompts.Add(PromptOf(3), 4);
  EXPECT_EQ(prompts.size(), 2u);
  EXPECT_GT(prompts.RefusedFor(PromptOf(1), 5), 0);
  EXPECT_EQ(prompts.RefusedFor(PromptOf(2), 5), 0) << "the oldest gave way";
  EXPECT_GT(prompts.RefusedFor(PromptOf(3), 5), 0);
}

}  // namespace
}  // namespace quire
