// Filters and policies over made-up fleets.
#include "router/routing/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
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

// As a dispatcher does it; empty: nobody can take the request.
std::optional<RouteChoice> Route(const Policy& policy, const FleetView& view,
                                 const RouteQuery& query) {
  const std::vector<WorkerView> candidates = Candidates(view, query);
  if (candidates.empty()) return std::nullopt;
  return Choose(policy, candidates, query);
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
        const auto reasons = RouteReasons(Policies());
        EXPECT_NE(std::find(reasons.begin(), reasons.end(), choice->reason), reasons.end())
            << choice->reason;
      }
    }
  }
}

// What a new policy is: a function, and an entry of the table's type.
RouteChoice ChooseLast(std::span<const WorkerView> candidates, const RouteQuery&) {
  return {candidates.back().worker, "last"};
}

TEST(Policies, AMadeUpOneChoosesThroughTheTablesType) {
  std::vector<Policy> policies(Policies().begin(), Policies().end());
  policies.push_back({.name = "last",
                      .help = "takes the worker that came last.",
                      .reasons = {"last"},
                      .choose = &ChooseLast});
  const auto choice = Route(policies.back(), ViewOf(3), {});
  EXPECT_EQ(choice->worker, WorkerIndex(2));
  EXPECT_EQ(choice->reason, "last");
  const auto reasons = RouteReasons(policies);
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "last"), 1);
  EXPECT_EQ(reasons.size(), RouteReasons(Policies()).size() + 1);
}

TEST(PoliciesDeathTest, AReasonThatThePolicyDoesNotNameIsABug) {
  const Policy policy{.name = "last", .help = "", .reasons = {"other"}, .choose = &ChooseLast};
  EXPECT_DEATH(Route(policy, ViewOf(1), {}), "says why");
}

// A table of router/README.md.
TEST(Policies, TheReadmeListsThemAsTheTableDoes) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/router/README.md");
  const std::string readme(std::istreambuf_iterator<char>(file), {});
  std::string rows = "| policy | how it chooses a worker |\n|---|---|\n";
  for (const Policy& policy : Policies()) {
    rows += "| `" + std::string(policy.name) + "` | " + std::string(policy.help) + " |\n";
  }
  EXPECT_NE(readme.find(rows + "\n"), std::string::npos)
      << "router/README.md must have this table:\n"
      << rows;
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

// A worker like the others, with this much to do.
WorkerView Busy(WorkerView worker, uint32_t rows, uint64_t work, uint32_t cached) {
  worker.load.running_rows = rows;
  worker.load.running_prefill_tokens = work;
  worker.cached_tokens = cached;
  return worker;
}

TEST(PrefixAware, WeighsWhatIsCachedAgainstTheQueue) {
  const Policy& policy = *FindPolicy("prefix-aware");
  RouteQuery query;
  query.prompt_tokens = 1000;
  const auto chosen = [&](FleetView view) { return Route(policy, view, query)->worker.value(); };
  FleetView view = ViewOf(2);
  view.workers[1] = Busy(view.workers[1], 0, 0, 800);
  EXPECT_EQ(chosen(view), 1u);
  EXPECT_EQ(Route(policy, view, query)->cached_tokens, 800u);
  EXPECT_EQ(Route(policy, view, query)->reason, "cached-prefix");
  view.workers[1] = Busy(view.workers[1], 0, 790, 800);  // 990 tokens of work against 1000
  EXPECT_EQ(chosen(view), 1u);
  view.workers[1] = Busy(view.workers[1], 0, 810, 800);
  EXPECT_EQ(chosen(view), 0u);
  view.workers[1] = Busy(view.workers[1], 3, 0, 800);  // 200 tokens, shared by four rows
  EXPECT_EQ(chosen(view), 1u);
  view.workers[1] = Busy(view.workers[1], 5, 0, 800);
  EXPECT_EQ(chosen(view), 0u);
}

// It waits for the end of another's answer to save much of its prefill, and not to save a little.
TEST(PrefixAware, CountsTheEndsThatARowTakes) {
  const Policy& policy = *FindPolicy("prefix-aware");
  RouteQuery query;
  FleetView view = ViewOf(2);
  for (WorkerView& worker : view.workers) worker.max_num_seqs = 4;
  const auto chosen = [&](uint32_t prompt, uint32_t rows, uint32_t cached) {
    query.prompt_tokens = prompt;
    view.workers[0] = Busy(view.workers[0], 3, 0, 0);
    view.workers[1] = Busy(view.workers[1], rows, 0, cached);
    return Route(policy, view, query)->worker.value();
  };
  EXPECT_EQ(chosen(64, 3, 48), 1u);
  EXPECT_EQ(chosen(64, 4, 48), 0u);
  EXPECT_EQ(chosen(2048, 4, 1920), 1u);
  EXPECT_EQ(chosen(256, 4, 96), 0u);
  view.workers[0].max_num_seqs = view.workers[1].max_num_seqs = 0;  // they do not tell
  EXPECT_EQ(chosen(64, 4, 48), 1u);
}

TEST(PrefixAware, CountsWhatIsOnItsWay) {
  const Policy& policy = *FindPolicy("prefix-aware");
  RouteQuery query;
  query.prompt_tokens = 100;
  FleetView view = ViewOf(2);
  const uint32_t first = Route(policy, view, query)->worker.value();
  view.workers[first].unseen_submits = 1;
  view.workers[first].unseen_tokens = 100;
  EXPECT_EQ(Route(policy, view, query)->worker.value(), 1 - first);
}

// Several routers that know nothing of each other send what begins alike to the same worker.
TEST(PrefixAware, TiesGoByHowThePromptBeginsOnEveryRouter) {
  const Policy& policy = *FindPolicy("prefix-aware");
  std::map<uint32_t, int> dealt;
  for (uint64_t key = 0; key < 400; ++key) {
    RouteQuery query;
    query.prompt_tokens = 100;
    query.affinity = key * 0x9E3779B97F4A7C15ull;
    std::vector<std::string> names = {"a", "b", "c", "d"};
    FleetView view = ViewOf(4);
    for (uint32_t i = 0; i < 4; ++i) view.workers[i].worker_id = names[i];
    const auto here = Route(policy, view, query);
    EXPECT_EQ(here->reason, "rendezvous");
    // Another router lists the workers in another order.
    FleetView other = ViewOf(4);
    for (uint32_t i = 0; i < 4; ++i) other.workers[i].worker_id = names[3 - i];
    query.turn = 17;
    EXPECT_EQ(other.workers[Route(policy, other, query)->worker.value()].worker_id,
              view.workers[here->worker.value()].worker_id);
    ++dealt[here->worker.value()];
    // Without that worker only its own keys move.
    FleetView fewer = view;
    const uint32_t gone = (here->worker.value() + 1) % 4;
    fewer.workers.erase(fewer.workers.begin() + gone);
    EXPECT_EQ(Route(policy, fewer, query)->worker, here->worker);
  }
  for (uint32_t i = 0; i < 4; ++i) EXPECT_GT(dealt[i], 60);
}

TEST(LeastLoaded, TakesTheOneWithFewestRowsAndTurnsAmongEquals) {
  const Policy& policy = *FindPolicy("least-loaded");
  FleetView view = ViewOf(3);
  RouteQuery query;
  std::map<uint32_t, int> dealt;
  for (query.turn = 0; query.turn < 9; ++query.turn) {
    ++dealt[Route(policy, view, query)->worker.value()];
  }
  EXPECT_EQ(dealt, (std::map<uint32_t, int>{{0, 3}, {1, 3}, {2, 3}}));
  view.workers[0] = Busy(view.workers[0], 2, 0, 0);
  view.workers[1] = Busy(view.workers[1], 1, 50, 0);
  view.workers[2] = Busy(view.workers[2], 1, 40, 0);
  EXPECT_EQ(Route(policy, view, query)->worker.value(), 2u);
}

TEST(PowerOfTwo, NeverTakesTheBusierOfItsTwo) {
  const Policy& policy = *FindPolicy("power-of-two");
  FleetView view = ViewOf(5);
  for (uint32_t i = 0; i < 5; ++i) view.workers[i] = Busy(view.workers[i], i, 0, 0);
  std::map<uint32_t, int> dealt;
  for (uint64_t i = 0; i < 5000; ++i) {
    RouteQuery query;
    query.random = i * 0x9E3779B97F4A7C15ull;
    ++dealt[Route(policy, view, query)->worker.value()];
  }
  EXPECT_EQ(dealt[4], 0);  // it is always the busier one
  for (uint32_t i = 1; i < 4; ++i) EXPECT_GT(dealt[i - 1], dealt[i]);
}

TEST(ConsistentHash, KeepsASessionWithItsWorker) {
  const Policy& policy = *FindPolicy("consistent-hash");
  std::vector<std::string> names = {"a", "b", "c"};
  for (int session = 0; session < 50; ++session) {
    const std::string key = "session-" + std::to_string(session);
    RouteQuery query;
    query.session = key;
    FleetView view = ViewOf(3);
    for (uint32_t i = 0; i < 3; ++i) view.workers[i].worker_id = names[i];
    const auto here = Route(policy, view, query);
    query.turn = 5;
    query.affinity = 99;
    view.workers[here->worker.value()] = Busy(view.workers[here->worker.value()], 30, 9000, 0);
    EXPECT_EQ(Route(policy, view, query)->worker, here->worker);
    EXPECT_EQ(here->reason, "session");
  }
}

}  // namespace
}  // namespace quire
