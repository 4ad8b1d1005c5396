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
  EXPECT_EQ(account->refused(MemoryScope::kProcess), 1u);
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
  const auto first = std::make_shared<MemoryAccount>(80, process, MemoryScope::kConnection);
  const auto second = std::make_shared<MemoryAccount>(80, process, MemoryScope::kConnection);
  MemoryHold a(first);
  MemoryHold b(second);
  EXPECT_TRUE(a.TryResize(70));
  EXPECT_EQ(process->bytes(), 70u);
  EXPECT_FALSE(b.TryResize(31));  // the process is full, not the second connection
  EXPECT_EQ(second->bytes(), 0u);
  EXPECT_EQ(&b.refuser(), process.get());
  EXPECT_EQ(process->refused(MemoryScope::kConnection), 0u);
  EXPECT_EQ(process->refused(MemoryScope::kProcess), 1u);
  EXPECT_TRUE(b.TryResize(30));
  EXPECT_FALSE(a.TryResize(81));
  EXPECT_EQ(&a.refuser(), first.get());
  EXPECT_EQ(process->refused(MemoryScope::kConnection), 1u);
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

TEST(MemoryAccount, WhatCountsBesideCountsOnceAboveAndInAllOrNowhere) {
  const auto process = std::make_shared<MemoryAccount>(100);
  const auto connection = std::make_shared<MemoryAccount>(90, process, MemoryScope::kConnection);
  const auto tenant = std::make_shared<MemoryAccount>(50, process, MemoryScope::kTenant);
  const auto waiting = std::make_shared<MemoryAccount>(60, nullptr, MemoryScope::kWaiting);
  const auto bytes = [&] {
    return std::vector<size_t>{process->bytes(), connection->bytes(), tenant->bytes(),
                               waiting->bytes()};
  };
  {
    MemoryHold hold(connection, {waiting, tenant});
    EXPECT_TRUE(hold.TryResize(50));
    EXPECT_EQ(bytes(), (std::vector<size_t>{50, 50, 50, 50}));
    EXPECT_FALSE(hold.TryResize(51));
    EXPECT_EQ(&hold.refuser(), tenant.get());
    EXPECT_EQ(bytes(), (std::vector<size_t>{50, 50, 50, 50})) << "nowhere";
    EXPECT_EQ(process->refused(MemoryScope::kTenant), 1u);
    EXPECT_TRUE(hold.TryResize(20));
    hold.Resize(30);
    EXPECT_EQ(bytes(), (std::vector<size_t>{30, 30, 30, 30}));

    MemoryHold later(connection);
    EXPECT_TRUE(later.TryResize(21));
    EXPECT_FALSE(later.TryCountBeside(tenant)) << "a byte more than there is room for";
    EXPECT_EQ(bytes(), (std::vector<size_t>{51, 51, 30, 30}));
    EXPECT_TRUE(later.TryResize(20));
    EXPECT_TRUE(later.TryCountBeside(tenant));
    EXPECT_EQ(bytes(), (std::vector<size_t>{50, 50, 50, 30}));
  }
  EXPECT_EQ(bytes(), (std::vector<size_t>{0, 0, 0, 0}));
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
