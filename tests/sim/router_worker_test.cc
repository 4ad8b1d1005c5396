// The seam's proof: router and workers as they are, on one thread and virtual time, through faults.
#include <gtest/gtest.h>

#include "tests/sim/sim_cluster.h"

namespace quire::sim {
namespace {

constexpr uint64_t kSeeds = 60;

// What each client gets when nothing goes wrong, alone or not: sampling depends on seed and
// position only.
RunResult Undisturbed(Scenario scenario) {
  scenario.faults.clear();
  scenario.page_count = 600;
  for (ClientPlan& client : scenario.clients) {
    client.cancels_after = -1;
    client.ask.timeout_ms = 0;
  }
  return RunScenario(scenario);
}

bool IsPrefix(const std::vector<TokenId>& part, const std::vector<TokenId>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// Holds a run to the oracle. Returns how many clients finished, or ended at their own deadline.
int Judge(const RunResult& run, const RunResult& calm, const Scenario& scenario) {
  EXPECT_TRUE(run.all_over) << "a client waits for ever";
  EXPECT_TRUE(run.at_rest) << "a worker still holds blocks";
  int finished = 0;
  for (size_t i = 0; i < run.clients.size(); ++i) {
    const ClientResult& client = run.clients[i];
    const ClientResult& expected = calm.clients[i];
    SCOPED_TRACE("client " + std::to_string(i));
    EXPECT_TRUE(expected.usage.has_value())
        << "a calm world finishes everything: " << (expected.error ? expected.error->message : "");
    EXPECT_EQ(client.terminal_events, client.cancelled ? 0 : 1);
    EXPECT_TRUE(IsPrefix(client.ids, expected.ids)) << "tokens differ from the undisturbed run";
    if (client.error) {
      const bool late = scenario.clients[i].ask.timeout_ms > 0 &&
                        client.error->code == ApiCode::kDeadlineExceeded;
      EXPECT_TRUE(late || client.error->code == ApiCode::kUnavailable) << client.error->message;
      if (late) ++finished;
    }
    if (!client.usage) continue;
    ++finished;
    EXPECT_EQ(client.ids, expected.ids);
    EXPECT_EQ(client.text, expected.text);
    EXPECT_EQ(client.logprobs, expected.logprobs);
    EXPECT_EQ(client.finish_reason, expected.finish_reason);
    EXPECT_EQ(client.usage->completion_tokens, client.ids.size());
  }
  return finished;
}

TEST(RouterAndWorkers, ACalmWorldFinishesEverything) {
  const Scenario scenario = DrawScenario(7);
  const RunResult calm = Undisturbed(scenario);
  EXPECT_EQ(Judge(calm, calm, scenario), static_cast<int>(scenario.clients.size()));
}

TEST(RouterAndWorkers, ALinkCutInMidStreamIsCarriedOn) {
  Scenario scenario;
  scenario.seed = 3;
  ClientPlan client;
  client.ask.prompt = TokenPrompt{{1, 2, 3}};
  client.ask.sampling.max_tokens = 100;
  client.ask.sampling.seed = 5;
  client.ask.streaming = true;
  scenario.clients.assign(4, client);
  for (size_t i = 0; i < 4; ++i) {
    scenario.clients[i].starts_at = 1000 * kMicrosPerMilli;
    scenario.clients[i].ask.sampling.seed = i;
  }
  for (int worker = 0; worker < 2; ++worker) {
    scenario.faults.push_back(
        {FaultPlan::Kind::kCut, worker, (1100 + 200 * worker) * kMicrosPerMilli, 0});
  }
  const RunResult calm = Undisturbed(scenario);
  EXPECT_EQ(Judge(RunScenario(scenario), calm, scenario), 4)
      << "each of them met a cut, and went on";
}

TEST(RouterAndWorkers, SeedsOfFaults) {
  int finished = 0;
  int clients = 0;
  int cancelled = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Scenario scenario = DrawScenario(seed);
    const RunResult run = RunScenario(scenario);
    finished += Judge(run, Undisturbed(scenario), scenario);
    clients += static_cast<int>(run.clients.size());
    for (const ClientResult& client : run.clients) cancelled += client.cancelled ? 1 : 0;
    const RunResult again = RunScenario(scenario);
    ASSERT_EQ(run.trace, again.trace) << "the same seed gives the same run";
    if (::testing::Test::HasFailure()) break;
  }
  // Errors are for those who found both workers gone for long; most must come through.
  EXPECT_GT(finished + cancelled, clients * 9 / 10) << finished << " of " << clients;
  RecordProperty("finished", finished);
  RecordProperty("clients", clients);
}

}  // namespace
}  // namespace quire::sim
