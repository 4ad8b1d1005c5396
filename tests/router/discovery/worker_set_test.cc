// Who may be dialled, and who may go.
#include "router/discovery/worker_set.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using Targets = std::vector<std::string>;
using Present = WorkerSet::Present;

constexpr Micros kMinute = WorkerSet::kForgetAfter;

TEST(WorkerSet, AddsWhatAnySourceNames) {
  WorkerSet set(10);
  set.Named("a", {"x:1", "y:1"});
  set.Named("b", {"y:1", "z:1"});
  EXPECT_EQ(set.Decide({}, 0).add, (Targets{"x:1", "y:1", "z:1"}));
  const std::vector<Present> present = {{"y:1", true, false}};
  EXPECT_EQ(set.Decide(present, 0).add, (Targets{"x:1", "z:1"}));
}

TEST(WorkerSet, KeepsAWorkerThatOneOfTwoSourcesStillNames) {
  WorkerSet set(10);
  set.Named("a", {"x:1"});
  set.Named("b", {"x:1"});
  set.Named("a", {});
  const std::vector<Present> present = {{"x:1", false, false}};
  EXPECT_TRUE(set.Decide(present, 10 * kMinute).remove.empty());
  set.Named("b", {});
  EXPECT_EQ(set.Decide(present, 10 * kMinute).remove, (Targets{"x:1"}));
}

TEST(WorkerSet, AnUnnamedWorkerGoesWhenItsLinkIsDownOrItWasIdleForAMinute) {
  WorkerSet set(10);
  set.Named("a", {});
  const std::vector<Present> idle = {{"x:1", true, false}};
  const std::vector<Present> busy = {{"x:1", true, true}};
  EXPECT_TRUE(set.Decide(idle, 0).remove.empty());
  EXPECT_TRUE(set.Decide(idle, kMinute - 1).remove.empty());
  // Work starts its minute again.
  EXPECT_TRUE(set.Decide(busy, kMinute).remove.empty());
  EXPECT_TRUE(set.Decide(idle, kMinute + 1).remove.empty());
  EXPECT_TRUE(set.Decide(idle, 2 * kMinute).remove.empty());
  EXPECT_EQ(set.Decide(idle, 2 * kMinute + 1).remove, (Targets{"x:1"}));
  const std::vector<Present> down = {{"x:1", false, false}};
  EXPECT_EQ(set.Decide(down, 5 * kMinute).remove, (Targets{"x:1"}));
}

TEST(WorkerSet, BeingNamedAgainStartsTheMinuteAnew) {
  WorkerSet set(10);
  const std::vector<Present> idle = {{"x:1", true, false}};
  set.Named("a", {});
  EXPECT_TRUE(set.Decide(idle, 0).remove.empty());
  set.Named("a", {"x:1"});
  EXPECT_TRUE(set.Decide(idle, kMinute).remove.empty());
  set.Named("a", {});
  EXPECT_TRUE(set.Decide(idle, kMinute + 1).remove.empty());
  EXPECT_EQ(set.Decide(idle, 2 * kMinute + 1).remove, (Targets{"x:1"}));
}

TEST(WorkerSet, TakesAsManyAsTheLimitAndNotOneMore) {
  WorkerSet set(3);
  set.Named("a", {"p:1", "q:1", "r:1"});
  EXPECT_EQ(set.Decide({}, 0).add.size(), 3u);
  EXPECT_EQ(set.left_out(), 0u);
  set.Named("a", {"p:1", "q:1", "r:1", "s:1"});
  EXPECT_EQ(set.Decide({}, 0).add, (Targets{"p:1", "q:1", "r:1"}));
  EXPECT_EQ(set.left_out(), 1u);
  // Workers that stay though nobody names them hold their places.
  set.Named("a", {"p:1", "q:1", "r:1"});
  const std::vector<Present> others = {{"o:1", true, true}, {"o:2", true, true}};
  EXPECT_EQ(set.Decide(others, 0).add, (Targets{"p:1"}));
}

}  // namespace
}  // namespace quire
