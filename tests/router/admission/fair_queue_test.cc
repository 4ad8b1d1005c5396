// Whose turn it is: shares by weight, priorities, no saving up, and who gives way.
#include "router/admission/fair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace quire {
namespace {

class FairQueueTest : public ::testing::Test {
 protected:
  void Push(const std::string& tenant, uint64_t cost, uint32_t weight = 1, int32_t priority = 0,
            const std::string& model = "m") {
    queue_.Push({++last_, model, tenant, weight, priority, cost, 0});
    queue_.CheckInvariants();
  }
  QueueEntry Pop(const std::string& model = "m") {
    const QueueEntry* next = queue_.Next(model);
    if (next == nullptr) return {};
    QueueEntry entry = *next;
    queue_.Pop(entry.id);
    queue_.CheckInvariants();
    return entry;
  }

  FairQueue queue_{8};
  uint64_t last_ = 0;
};

TEST_F(FairQueueTest, OneTenantIsServedInOrderOfArrival) {
  for (int i = 0; i < 5; ++i) Push("a", 100);
  for (uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(Pop().id, id);
  EXPECT_EQ(queue_.Next("m"), nullptr);
}

TEST_F(FairQueueTest, TokensAreSharedByWeightWhateverTheSizeOfRequests) {
  for (int i = 0; i < 400; ++i) {
    Push("small", 10, 1);
    Push("large", 100, 1);
    Push("heavy", 50, 3);
  }
  std::map<std::string, uint64_t> served;
  for (int i = 0; i < 400; ++i) {
    const QueueEntry entry = Pop();
    served[entry.tenant] += entry.cost;
  }
  EXPECT_NEAR(static_cast<double>(served["large"]), static_cast<double>(served["small"]), 110);
  EXPECT_NEAR(static_cast<double>(served["heavy"]), 3.0 * static_cast<double>(served["small"]),
              350);
}

TEST_F(FairQueueTest, WhoIdlesSavesUpNothing) {
  for (int i = 0; i < 100; ++i) Push("busy", 10);
  for (int i = 0; i < 50; ++i) Pop();
  for (int i = 0; i < 20; ++i) Push("late", 10);
  int late = 0;
  for (int i = 0; i < 20; ++i) late += Pop().tenant == "late" ? 1 : 0;
  EXPECT_NEAR(late, 10, 1) << "half from now on, and nothing for the past";
}

TEST_F(FairQueueTest, WhatARequestReallyTookIsSettled) {
  Push("modest", 100);
  Push("greedy", 100);
  const QueueEntry modest = Pop();
  const QueueEntry greedy = Pop();
  EXPECT_EQ(modest.tenant, "modest") << "arrival decides between equals";
  queue_.Settle(greedy, 900);
  queue_.Settle(modest, -90);
  for (int i = 0; i < 20; ++i) {
    Push("greedy", 10);
    Push("modest", 10);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Pop().tenant, "modest");
}

TEST_F(FairQueueTest, PriorityGoesBeforeFairness) {
  Push("a", 10, 1, 5);
  Push("b", 10, 1, -1);
  Push("a", 10, 1, 0);
  EXPECT_EQ(queue_.ByPriority("m"), (std::map<int32_t, size_t>{{-1, 1}, {0, 1}, {5, 1}}));
  EXPECT_EQ(Pop().id, 2u);
  EXPECT_EQ(Pop().id, 3u);
  EXPECT_EQ(Pop().id, 1u);
}

TEST_F(FairQueueTest, ModelsHaveLanesOfTheirOwn) {
  Push("a", 10, 1, 0, "m");
  Push("a", 10, 1, 0, "k");
  EXPECT_EQ(queue_.Models(), (std::vector<std::string>{"k", "m"}));
  EXPECT_EQ(queue_.QueuedBy("a"), 2u);
  EXPECT_EQ(Pop("k").id, 2u);
  EXPECT_EQ(queue_.Models(), std::vector<std::string>{"m"});
}

TEST_F(FairQueueTest, WhoLeavesIsNotServed) {
  Push("a", 10);
  Push("a", 10);
  EXPECT_EQ(queue_.Next("m")->id, 1u);
  EXPECT_TRUE(queue_.Remove(1));
  EXPECT_FALSE(queue_.Remove(1));
  queue_.CheckInvariants();
  EXPECT_EQ(Pop().id, 2u);
}

TEST_F(FairQueueTest, TheYoungestOfTheLargestShareGivesWay) {
  for (int i = 0; i < 3; ++i) Push("a", 10);
  for (int i = 0; i < 4; ++i) Push("b", 10, 2);
  EXPECT_EQ(queue_.WhoGivesWay("c", 1, 0), 3u) << "three for a weight of one are most";
  EXPECT_EQ(queue_.WhoGivesWay("a", 1, 0), std::nullopt) << "its own share is the largest";
  EXPECT_EQ(queue_.WhoGivesWay("c", 1, 1), std::nullopt) << "it is less urgent than all";
  EXPECT_EQ(queue_.WhoGivesWay("a", 1, -1), 3u) << "urgency comes first, even over oneself";
  Push("c", 10, 1, 7, "other");
  EXPECT_EQ(queue_.WhoGivesWay("a", 1, 0), 8u) << "the last priority of all lanes";
}

TEST_F(FairQueueTest, CountersOfIdleTenantsAreForgotten) {
  for (int i = 0; i < 1000; ++i) {
    Push("tenant-" + std::to_string(i), 1000);
    Pop();
  }
  for (int i = 0; i < 20; ++i) Push("tenant-" + std::to_string(i), 10);
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) seen.insert(Pop().tenant);
  EXPECT_EQ(seen.size(), 20u);
}

}  // namespace
}  // namespace quire
