// Deaths, ejection, slow start of one worker; and what a pool can do without.
#include "router/fleet/worker_health.h"

#include <gtest/gtest.h>

#include "router/fleet/fleet.h"

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

TEST(WorkerHealth, ANewEpochIsADeathAndTheSameOneIsNot) {
  WorkerHealth health;
  EXPECT_EQ(health.Greeted(Epoch(1), 0), DeathNews::kNothing);
  health.LinkLost(kSecond);
  EXPECT_EQ(health.Greeted(Epoch(1), 2 * kSecond), DeathNews::kLives);
  health.LinkLost(3 * kSecond);
  EXPECT_EQ(health.Greeted(Epoch(2), 4 * kSecond), DeathNews::kDied);
  EXPECT_EQ(health.deaths(), 1u);
  EXPECT_FALSE(health.Ejected(4 * kSecond)) << "one death leaves nobody out";
}

TEST(WorkerHealth, AnEpochThatDrainedDoesNotDie) {
  WorkerHealth health;
  health.Greeted(Epoch(1), 0);
  health.Draining();
  health.LinkLost(kSecond);
  EXPECT_EQ(health.Refused(kSecond), DeathNews::kNothing);
  EXPECT_EQ(health.Greeted(Epoch(2), 2 * kSecond), DeathNews::kNothing);
  health.LinkLost(3 * kSecond);
  EXPECT_EQ(health.Refused(3 * kSecond), DeathNews::kDied) << "this one did not drain";
}

TEST(WorkerHealth, ARefusedConnectionCountsOnceAndIsTakenBack) {
  WorkerHealth health;
  EXPECT_EQ(health.Refused(0), DeathNews::kNothing) << "nobody knows it yet";
  health.Greeted(Epoch(1), 0);
  health.LinkLost(kSecond);
  EXPECT_EQ(health.Refused(kSecond), DeathNews::kDied);
  EXPECT_EQ(health.Refused(2 * kSecond), DeathNews::kNothing);
  EXPECT_EQ(health.Greeted(Epoch(1), 3 * kSecond), DeathNews::kTakenBack);
  EXPECT_EQ(health.deaths(), 0u);
  health.LinkLost(4 * kSecond);
  EXPECT_EQ(health.Refused(4 * kSecond), DeathNews::kDied);
  EXPECT_EQ(health.Greeted(Epoch(2), 5 * kSecond), DeathNews::kNothing) << "known already";
  EXPECT_EQ(health.deaths(), 1u);
}

TEST(WorkerHealth, AStuckStepIsOneDeathWithTheEndOfItsEpoch) {
  WorkerHealth health;
  health.Greeted(Epoch(1), 0);
  EXPECT_EQ(health.StepSeen(false, kSecond), DeathNews::kNothing);
  EXPECT_EQ(health.StepSeen(true, kSecond), DeathNews::kDied);
  EXPECT_EQ(health.StepSeen(true, 2 * kSecond), DeathNews::kNothing);
  health.LinkLost(3 * kSecond);
  EXPECT_EQ(health.Refused(3 * kSecond), DeathNews::kNothing);
  EXPECT_EQ(health.Greeted(Epoch(2), 4 * kSecond), DeathNews::kNothing);
  EXPECT_EQ(health.StepSeen(true, 5 * kSecond), DeathNews::kDied) << "another step, another death";
  EXPECT_EQ(health.deaths(), 2u);
}

TEST(WorkerHealth, ACrashLoopIsLeftOutEverLonger) {
  WorkerHealth health;
  Micros now = 0;
  Micros before = 0;
  uint64_t epoch = 1;
  health.Greeted(Epoch(epoch), now);
  for (int death = 1; death <= 12; ++death) {
    now += kSecond;
    health.LinkLost(now);
    health.Greeted(Epoch(++epoch), now);
    const Micros out = std::max<Micros>(0, health.ejected_until() - now);
    if (death == 1) {
      EXPECT_EQ(out, 0);
    } else if (death == 2) {
      EXPECT_EQ(out, kSecond);
    } else {
      EXPECT_EQ(out, std::min(60 * kSecond, 2 * before));
    }
    before = out;
  }
  EXPECT_EQ(before, 60 * kSecond);
  now += 61 * kSecond;  // it lives for once
  health.LinkLost(now);
  health.Greeted(Epoch(++epoch), now);
  EXPECT_EQ(health.deaths(), 1u);
  EXPECT_FALSE(health.Ejected(now));
}

TEST(WorkerHealth, StartsSlowlyWhenItReturns) {
  WorkerHealth health;
  health.Greeted(Epoch(1), 0);
  EXPECT_FALSE(health.SlowStartCap(0, 64).has_value()) << "a router that starts knows nobody";
  health.LinkLost(kSecond);
  health.Greeted(Epoch(1), 2 * kSecond);
  EXPECT_FALSE(health.SlowStartCap(2 * kSecond, 64).has_value()) << "it was never away";
  health.LinkLost(3 * kSecond);
  health.Greeted(Epoch(2), 10 * kSecond);
  EXPECT_EQ(health.SlowStartCap(10 * kSecond, 64), 1u);
  EXPECT_EQ(health.SlowStartCap(11'500'000, 64), 33u);
  EXPECT_FALSE(health.SlowStartCap(13 * kSecond, 64).has_value());
}

class PoolTest : public ::testing::Test {
 protected:
  void Add(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(fleet_.AddWorker("w" + std::to_string(i) + ":1").ok());
      Attach(i, 1, 0);
    }
    fleet_.TextReady("m");
  }
  void Attach(int worker, uint64_t epoch, Micros now) {
    WorkerHello hello;
    hello.worker_id = "w" + std::to_string(worker);
    hello.epoch = Epoch(epoch);
    hello.model_id = "m";
    hello.served_names = {"m"};
    hello.limits.max_num_seqs = 64;
    fleet_.Greeted(At(worker), Epoch(epoch), now);
    ASSERT_TRUE(fleet_.Attached(At(worker), hello, 0).ok());
    StepFrame step;
    step.state = WorkerState::kReady;
    fleet_.Stepped(At(worker), step, now);
  }
  void Lose(int worker, bool silent, Micros now) {
    fleet_.LinkLost(At(worker), silent, now);
    fleet_.Detached(At(worker), "gone", 0);
  }
  void Crash(int worker, int times) {
    for (int i = 0; i < times; ++i) {
      Lose(worker, false, 0);
      Attach(worker, ++epoch_, 0);
    }
  }
  static WorkerIndex At(int worker) { return WorkerIndex(static_cast<uint32_t>(worker)); }
  std::vector<uint32_t> Offered() {
    fleet_.CheckInvariants();
    std::vector<uint32_t> offered;
    for (const WorkerView& worker : fleet_.View("m", 1).workers) {
      offered.push_back(worker.worker.value());
    }
    return offered;
  }

  Fleet fleet_{RouterLimits()};
  uint64_t epoch_ = 1;
};

TEST_F(PoolTest, HalfOfItIsLeftOutAtMost) {
  Add(4);
  Crash(0, 1);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{0, 1, 2, 3}));
  Crash(0, 1);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{1, 2, 3}));
  Crash(1, 4);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{2, 3}));
  Crash(2, 3);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{0, 3})) << "the one with the fewest deaths serves";
  EXPECT_EQ(fleet_.EjectedCount("m", 1), 2u);
  EXPECT_EQ(fleet_.EjectedCount("m", 3600 * kSecond), 0u);
}

TEST_F(PoolTest, TheLastOneServesHoweverOftenItDied) {
  Add(2);
  Crash(0, 5);
  Lose(1, false, 0);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{0}));
}

TEST_F(PoolTest, HalfOfItIsGivenUpForSilenceAtMost) {
  Add(4);
  for (int worker : {0, 1}) {
    EXPECT_TRUE(fleet_.MayGiveUpSilent(At(worker)));
    Lose(worker, true, 0);
  }
  EXPECT_FALSE(fleet_.MayGiveUpSilent(At(2)));
  EXPECT_EQ(fleet_.worker(At(2)).phase, WorkerPhase::kSilent);
  EXPECT_EQ(Offered(), (std::vector<uint32_t>{3})) << "no new work for it";
  EXPECT_EQ(fleet_.Refused(At(0), 1), DeathNews::kDied);
  EXPECT_FALSE(fleet_.MayGiveUpSilent(At(2))) << "three are in the pool, one of them was given up";
  StepFrame step;
  step.state = WorkerState::kReady;
  fleet_.Stepped(At(2), step, 2);
  EXPECT_EQ(fleet_.worker(At(2)).phase, WorkerPhase::kReady) << "it was heard again";
  Attach(1, 1, 3);
  EXPECT_TRUE(fleet_.MayGiveUpSilent(At(2))) << "one of three";
}

TEST_F(PoolTest, OneAloneIsNeverGivenUpForSilence) {
  Add(1);
  EXPECT_FALSE(fleet_.MayGiveUpSilent(At(0)));
  EXPECT_TRUE(Offered().empty());
}

}  // namespace
}  // namespace quire
