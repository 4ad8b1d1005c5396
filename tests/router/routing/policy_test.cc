// Filters and policies over made-up fleets.
#include "router/routing/policy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace quire {
namespace {

const std::vector<std::string> kBoth = {"resume", "logprobs"};
const std::vector<std::string> kOne = {"logprobs"};

FleetView ViewOf(uint32_t count) {
  FleetView view;
  for (uint32_t i = 0; i < count; ++i) {
    WorkerView worker;
    worker.worker = WorkerIndex(i);
    worker.features = kBoth;
    worker.max_waiting_requests = 8;
    view.workers.push_back(worker);
  }
  return view;
}

TEST(Policies, AreFoundByName) {
  ASSERT_FALSE(Policies().empty());
  for (const Policy& policy : Policies()) EXPECT_EQ(FindPolicy(policy.name), &policy);
  EXPECT_EQ(FindPolicy("psychic"), nullptr);
}

TEST(Policies, EveryOneChoosesACandidateAndTheSameOneAgain) {
  for (const Policy& policy : Policies()) {
    for (uint32_t count = 1; count <= 5; ++count) {
      const FleetView view = ViewOf(count);
      for (uint64_t turn = 0; turn < 12; ++turn) {
        RouteQuery query;
        query.turn = turn;
        const auto choice = Route(policy, view, query);
        ASSERT_TRUE(choice.has_value());
        EXPECT_LT(choice->worker.value(), count);
        EXPECT_EQ(Route(policy, view, query)->worker, choice->worker);
        EXPECT_FALSE(choice->reason.empty());
      }
    }
  }
}

TEST(RoundRobin, DealsEvenly) {
  std::map<uint32_t, int> dealt;
  for (uint64_t turn = 0; turn < 30; ++turn) {
    RouteQuery query;
    query.turn = turn;
    ++dealt[Route(*FindPolicy("round-robin"), ViewOf(3), query)->worker.value()];
  }
  EXPECT_EQ(dealt, (std::map<uint32_t, int>{{0, 10}, {1, 10}, {2, 10}}));
}

TEST(Route, ExcludedWorkersAreNotChosen) {
  RouteQuery query;
  query.excluded = {WorkerIndex(0), WorkerIndex(2)};
  for (query.turn = 0; query.turn < 5; ++query.turn) {
    EXPECT_EQ(Route(Policies().front(), ViewOf(3), query)->worker, WorkerIndex(1));
  }
  query.excluded.push_back(WorkerIndex(1));
  EXPECT_FALSE(Route(Policies().front(), ViewOf(3), query).has_value());
}

TEST(Route, WorkersWithoutAFeatureAreNotChosen) {
  FleetView view = ViewOf(2);
  view.workers[0].features = kOne;
  RouteQuery query;
  query.required_features = {"resume"};
  for (query.turn = 0; query.turn < 5; ++query.turn) {
    EXPECT_EQ(Route(Policies().front(), view, query)->worker, WorkerIndex(1));
  }
  query.required_features = {"resume", "flying"};
  EXPECT_FALSE(Route(Policies().front(), view, query).has_value());
}

TEST(Route, CreditIsTheShareOfTheQueueAndAtLeastOne) {
  FleetView view = ViewOf(1);
  WorkerView& worker = view.workers[0];
  worker.routers_attached = 3;
  EXPECT_EQ(SubmitCredit(worker), 2u);
  worker.unadmitted_submits = 1;
  EXPECT_TRUE(Route(Policies().front(), view, {}).has_value());
  worker.unadmitted_submits = 2;
  EXPECT_FALSE(Route(Policies().front(), view, {}).has_value());
  worker.max_waiting_requests = 0;
  EXPECT_EQ(SubmitCredit(worker), 1u);
}

TEST(Route, NobodyIsNoChoice) {
  EXPECT_FALSE(Route(Policies().front(), FleetView(), {}).has_value());
}

}  // namespace
}  // namespace quire
