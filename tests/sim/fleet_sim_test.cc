// The random suite of the router: lives of a whole fleet, judged to the token.
#include <map>

#include "tests/support/fleet_sim/fleet_sim.h"
#include "tests/support/seed_suite.h"

namespace quire::sim {
namespace {

TEST(FleetSim, EveryPromiseIsKeptUnderEverySeed) {
  std::map<std::string, uint64_t> met;
  SeedSuite suite{1000, "test_sim --gtest_filter=FleetSim.*",
                  [&met](uint64_t seed, bool again) {
                    // Its second time is held to the first one's trace alone.
                    if (again) return Life{{}, TraceOfFleet(DrawFleet(seed))};
                    const FleetResult result = RunFleetSeed(seed);
                    for (const auto& [what, count] : result.met) met[what] += count;
                    return Life{result.violations, result.trace};
                  },
                  /*twice_every=*/1};
  const bool all = LiveSeeds(suite);
  for (const auto& [what, count] : met) {
    std::printf("%8llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  if (!all) return;
  // What the seeds must have met, so that the suite does not grow blind.
  for (const char* what : {"finished",
                           "suspect",
                           "resumed by their client",
                           "told to come back",
                           "told to come back in the middle of an answer",
                           "logprobs compared",
                           "killed by poison",
                           "told to wait for its quota",
                           "left behind by an update",
                           "exact indexes",
                           "answered with an adapter",
                           "told that a feature is not served",
                           "attempts that lost their router",
                           "quire_router_carry_ons_total",
                           "quire_router_paced_carry_ons_total",
                           "quire_router_worker_deaths_total",
                           "quire_router_worker_deaths_taken_back_total",
                           "quire_router_kept_silences_total",
                           "quire_router_silent_workers_total",
                           "quire_router_placement_retries_total",
                           "quire_router_placement_retries_denied_total",
                           "quire_router_stale_outputs_total"}) {
    EXPECT_GT(met[what], 0u) << what;
  }
  for (int kind = 0; kind < FleetFault::kKinds; ++kind) {
    EXPECT_GT(met["faults of kind " + std::to_string(kind)], 0u) << kind;
  }
}

}  // namespace
}  // namespace quire::sim
