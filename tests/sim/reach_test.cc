// What the judge of the random suite lets a router say of workers that it lacks.
#include "tests/support/fleet_sim/reach.h"

#include <gtest/gtest.h>

namespace quire::sim {
namespace {

constexpr Micros kFinds = 1000;
constexpr Micros kWait = 1500;

class ReachTest : public testing::Test {
 protected:
  void See(Reach::State state, Micros now) { reach.See(0, 7, state, "model", now); }
  bool MayLack(Micros now) { return reach.MayLack(0, "model", now); }

  Reach reach{kFinds, kWait};
};

TEST_F(ReachTest, AWorkerIsKnownOnceItWasThereForLongEnough) {
  EXPECT_TRUE(MayLack(0));
  See(Reach::State::kThere, 100);
  EXPECT_TRUE(MayLack(100 + kFinds - 1));
  EXPECT_FALSE(MayLack(100 + kFinds));
  EXPECT_TRUE(reach.MayLack(0, "another model", 100 + kFinds));
  EXPECT_TRUE(reach.MayLack(1, "model", 100 + kFinds));
}

TEST_F(ReachTest, AnAnswerWaitsForAsLongAsItIsPromised) {
  See(Reach::State::kThere, 0);
  See(Reach::State::kGone, 5000);
  EXPECT_FALSE(MayLack(5000 + kWait - 1));
  EXPECT_TRUE(MayLack(5000 + kWait));
  See(Reach::State::kThere, 6000);  // back, and gone before it was found
  See(Reach::State::kGone, 6000 + kFinds - 1);
  EXPECT_TRUE(MayLack(6000 + kFinds));
}

TEST_F(ReachTest, AMomentOfStandingStillIsNoBreakAndALongOneIs) {
  See(Reach::State::kThere, 0);
  See(Reach::State::kHeldUp, 2000);
  See(Reach::State::kThere, 2400);
  EXPECT_FALSE(MayLack(2400));
  See(Reach::State::kHeldUp, 3000);
  See(Reach::State::kHeldUp, 3001 + kMicrosPerSecond);
  EXPECT_TRUE(MayLack(3000 + kMicrosPerSecond + kWait));
}

TEST_F(ReachTest, BreaksAreRememberedByTheModelOfTheirTime) {
  See(Reach::State::kThere, 0);
  reach.BreakWorker(7, 2000);
  reach.See(0, 7, Reach::State::kThere, "next model", 2000);
  EXPECT_FALSE(MayLack(2000 + kWait - 1));
  EXPECT_TRUE(reach.MayLack(0, "next model", 2000 + kFinds - 1));
  EXPECT_FALSE(reach.MayLack(0, "next model", 2000 + kFinds));
}

TEST_F(ReachTest, WaitsAreThoseOfTheRoutersClock) {
  See(Reach::State::kThere, 0);
  See(Reach::State::kGone, 2000);
  reach.LeapRouter(0, 600, 2100);
  EXPECT_FALSE(MayLack(2000 + kWait - 601));
  EXPECT_TRUE(MayLack(2000 + kWait - 600));
}

}  // namespace
}  // namespace quire::sim
