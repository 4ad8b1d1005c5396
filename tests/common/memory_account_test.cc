// What clients hold, and who is refused more.
#include "common/memory_account.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace quire {
namespace {

TEST(MemoryAccount, AtTheLimitPassesAndOneByteMoreIsRefusedAndCounted) {
  const auto account = std::make_shared<MemoryAccount>(100);
  MemoryHold hold(account);
  EXPECT_TRUE(hold.TryResize(100));
  EXPECT_FALSE(account->over());
  EXPECT_FALSE(hold.TryResize(101));
  EXPECT_EQ(hold.bytes(), 100u);
  EXPECT_EQ(account->bytes(), 100u);
  EXPECT_EQ(account->refused(), 1u);
}

TEST(MemoryAccount, AHoldGivesBackWhatItCounts) {
  const auto account = std::make_shared<MemoryAccount>(100);
  {
    MemoryHold hold(account);
    EXPECT_TRUE(hold.TryResize(60));
    EXPECT_TRUE(hold.TryResize(10));
    EXPECT_EQ(account->bytes(), 10u);
  }
  EXPECT_EQ(account->bytes(), 0u);
}

TEST(MemoryAccount, WhatOneHoldsCountsForAllAboveItOrNowhere) {
  const auto process = std::make_shared<MemoryAccount>(100);
  const auto first = std::make_shared<MemoryAccount>(80, process);
  const auto second = std::make_shared<MemoryAccount>(80, process);
  MemoryHold a(first);
  MemoryHold b(second);
  EXPECT_TRUE(a.TryResize(70));
  EXPECT_EQ(process->bytes(), 70u);
  EXPECT_FALSE(b.TryResize(31));  // the process is full, not the second connection
  EXPECT_EQ(second->bytes(), 0u);
  EXPECT_EQ(second->refused(), 0u);
  EXPECT_EQ(process->refused(), 1u);
  EXPECT_TRUE(b.TryResize(30));
  EXPECT_FALSE(a.TryResize(81));
  EXPECT_EQ(first->refused(), 1u);
}

TEST(MemoryAccount, WhatIsTakenAlreadyCountsBeyondTheLimitAndShows) {
  const auto process = std::make_shared<MemoryAccount>(100);
  const auto connection = std::make_shared<MemoryAccount>(1000, process);
  MemoryHold hold(connection);
  hold.Resize(101);
  EXPECT_TRUE(hold.over());
  EXPECT_TRUE(process->over());
  EXPECT_FALSE(hold.TryResize(102));
  EXPECT_TRUE(hold.TryResize(99));  // less is never refused
  EXPECT_FALSE(hold.over());
}

TEST(MemoryAccount, ThreadsThatChargeAtOnceNeverPassTheLimit) {
  const auto account = std::make_shared<MemoryAccount>(10);
  std::vector<std::thread> threads;
  std::atomic<int> most{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        static std::atomic<int> now{0};
        MemoryHold hold(account);
        if (!hold.TryResize(3)) continue;
        const int held = ++now;
        int seen = most;
        while (held > seen && !most.compare_exchange_weak(seen, held)) {
        }
        --now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_EQ(account->bytes(), 0u);
}

}  // namespace
}  // namespace quire
