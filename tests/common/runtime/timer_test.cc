#include "common/runtime/timer.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/runtime/virtual_runtime.h"

namespace quire {
namespace {

TEST(Timer, SettingItAgainReplacesWhatItWasSetTo) {
  VirtualWorld world{1};
  int first = 0, second = 0;
  Timer timer(world.executor());
  EXPECT_FALSE(timer.running());
  const Micros now = world.clock().Now();
  timer.Set(now + 10, [&] { ++first; });
  timer.Set(now + 20, [&] { ++second; });
  EXPECT_TRUE(timer.running());
  EXPECT_EQ(timer.due(), now + 20);
  world.RunUntil(world.clock().Now() + 100);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
  EXPECT_FALSE(timer.running());
}

TEST(Timer, EndsWithItsOwnerOrByStop) {
  VirtualWorld world{1};
  int calls = 0;
  Timer stopped(world.executor());
  stopped.SetIn(10, [&] { ++calls; });
  stopped.Stop();
  auto owned = std::make_unique<Timer>(world.executor());
  owned->SetIn(10, [&] { ++calls; });
  auto lives = std::make_unique<Timer>(world.executor());
  lives->SetIn(10, [&] { ++calls; });
  owned.reset();
  world.RunUntil(world.clock().Now() + 100);
  EXPECT_EQ(calls, 1) << "of the one that lives";
}

TEST(Timer, ItsWorkMaySetItAgainAndEndIt) {
  VirtualWorld world{1};
  int calls = 0;
  auto timer = std::make_unique<Timer>(world.executor());
  timer->SetIn(10, [&] {
    timer->SetIn(10, [&calls, &timer] {
      timer.reset();
      ++calls;
    });
  });
  world.RunUntil(world.clock().Now() + 100);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(timer, nullptr);
}

}  // namespace
}  // namespace quire
