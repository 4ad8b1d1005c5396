// Whose work is next.
#include "common/runtime/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace quire {
namespace {

using Job = WorkQueue::Job;
using Answer = WorkQueue::Answer;

constexpr size_t kLarge = 1 << 20;

Answer Push(WorkQueue& queue, const std::string& owner, size_t bytes = 1,
            std::shared_ptr<std::atomic<bool>> cancelled = nullptr) {
  return queue.Push(Job{{owner, bytes, std::move(cancelled)}, [] {}, [] {}});
}

std::string Owners(WorkQueue& queue, bool large_allowed = true) {
  std::string owners;
  while (auto job = queue.Pop(large_allowed)) owners += job->share.owner;
  return owners;
}

TEST(WorkQueue, OwnersTakeTurnsByWhatTheyHaveHad) {
  WorkQueue queue({});
  for (int i = 0; i < 6; ++i) Push(queue, "a", 10'000);
  for (int i = 0; i < 3; ++i) Push(queue, "b", 10'000);
  EXPECT_EQ(Owners(queue), "abababaaa");
  WorkQueue other({});
  for (int i = 0; i < 3; ++i) Push(other, "a", 60'000);
  for (int i = 0; i < 6; ++i) Push(other, "b", 1'000);
  EXPECT_EQ(Owners(other), "abbbbbbaa") << "what is small costs less";
}

TEST(WorkQueue, AnOwnersWorkKeepsItsOrder) {
  WorkQueue queue({});
  for (size_t bytes : {5u, 1u << 20, 3u, 2u << 20}) Push(queue, "a", bytes);
  for (size_t bytes : {5u, 1u << 20, 3u, 2u << 20}) EXPECT_EQ(queue.Pop(true)->share.bytes, bytes);
}

TEST(WorkQueue, NothingIsSavedUpByIdling) {
  WorkQueue queue({});
  for (int i = 0; i < 100; ++i) Push(queue, "a", 50'000);
  for (int i = 0; i < 100; ++i) queue.Pop(true);
  for (int i = 0; i < 4; ++i) Push(queue, "a", 50'000);
  for (int i = 0; i < 4; ++i) Push(queue, "late", 50'000);
  std::string owners;
  for (int i = 0; i < 4; ++i) owners += queue.Pop(true)->share.owner[0];
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 'l'), 2) << owners;
}

TEST(WorkQueue, LargeWorkWaitsWhereItMayNotRunAndSmallWorkPassesIt) {
  WorkQueue queue({});
  Push(queue, "a", kLarge);
  Push(queue, "a", 1);
  Push(queue, "b", 1);
  EXPECT_EQ(Owners(queue, false), "ab");
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(Owners(queue, true), "a");
}

TEST(WorkQueue, AtItsLimitsItTakesAndOneMoreItRefuses) {
  WorkQueue queue({.max_queued = 4, .max_of_owner = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Push(queue, "a"), Answer::kQueued);
  EXPECT_EQ(Push(queue, "a"), Answer::kOwnerFull);
  EXPECT_EQ(Push(queue, "b"), Answer::kQueued);
  EXPECT_EQ(Push(queue, "b"), Answer::kFull);
  EXPECT_EQ(Owners(queue).size(), 4u);
}

TEST(WorkQueue, WhatIsCancelledMakesRoomForItsOwner) {
  WorkQueue queue({.max_queued = 8, .max_of_owner = 2});
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Push(queue, "a", 1, cancelled);
  Push(queue, "a", kLarge, cancelled);
  Push(queue, "b", 1, cancelled);
  EXPECT_TRUE(queue.TakeCancelled("a").empty());
  *cancelled = true;
  EXPECT_EQ(Push(queue, "a"), Answer::kOwnerFull);
  EXPECT_EQ(queue.TakeCancelled("a").size(), 2u);
  EXPECT_EQ(Push(queue, "a"), Answer::kQueued);
  EXPECT_EQ(queue.size(), 2u);
}

TEST(WorkQueue, OwnersThatAreMadeUpAreForgotten) {
  WorkQueue queue({});
  for (int i = 0; i < 20'000; ++i) {
    Push(queue, "made up " + std::to_string(i));
    queue.Pop(true);
  }
  EXPECT_LE(queue.owners(), 1024u + 4096 + 1);
}

}  // namespace
}  // namespace quire
