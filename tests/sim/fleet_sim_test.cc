// The random suite of the router: lives of a whole fleet, judged to the token.
//
// A failure prints its seed; QUIRE_SIM_SEED=<seed> runs that one alone, QUIRE_SIM_SEEDS=<n> so
// many.
#include "tests/support/fleet_sim/fleet_sim.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace quire::sim {
namespace {

constexpr uint64_t kSeeds = 1000;
constexpr uint64_t kTwiceEvery = 20;  // every so manieth seed is run twice

// An assertion ends the process; this says in which life.
volatile uint64_t running_seed = 0;
void SayTheSeed(int) {
  char text[96];
  const int length = std::snprintf(text, sizeof(text), "died in seed %llu (QUIRE_SIM_SEED)\n",
                                   static_cast<unsigned long long>(running_seed));
  if (length > 0 && write(2, text, static_cast<size_t>(length)) < 0) _exit(1);
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(FleetSim, EveryPromiseIsKeptUnderEverySeed) {
  std::map<std::string, uint64_t> met;
  const uint64_t only = FromEnvironment("QUIRE_SIM_SEED", 0);
  const uint64_t seeds = FromEnvironment("QUIRE_SIM_SEEDS", kSeeds);
  signal(SIGABRT, SayTheSeed);
  int failed = 0;
  for (uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    running_seed = seed;
    const FleetResult result = RunFleetSeed(seed);
    for (const std::string& violation : result.violations) {
      ADD_FAILURE() << "seed " << seed << ": " << violation << "\nreplay: QUIRE_SIM_SEED=" << seed
                    << " test_sim --gtest_filter=FleetSim.*";
    }
    for (const auto& [what, count] : result.met) met[what] += count;
    if (only > 0 && std::getenv("QUIRE_SIM_TRACE") != nullptr) {
      for (const std::string& line : result.trace) std::printf("%s\n", line.c_str());
    }
    failed += !result.violations.empty();
    if (failed >= 5) break;
    if (seed % kTwiceEvery != 0 && only == 0) continue;
    EXPECT_EQ(RunFleetSeed(seed).trace, result.trace) << "seed " << seed << " run twice";
  }
  for (const auto& [what, count] : met)
    std::printf("%8llu %s\n", (unsigned long long)count, what.c_str());
  if (only > 0 || seeds != kSeeds || failed > 0) return;
  // What the seeds must have met, so that the suite does not grow blind.
  for (const char* what :
       {"finished", "suspect", "resumed by their client", "told to come back", "killed by poison",
        "quire_router_carry_ons_total", "quire_router_paced_carry_ons_total",
        "quire_router_worker_deaths_total", "quire_router_worker_deaths_taken_back_total",
        "quire_router_kept_silences_total", "quire_router_silent_workers_total",
        "quire_router_placement_retries_total", "quire_router_placement_retries_denied_total",
        "quire_router_stale_outputs_total"}) {
    EXPECT_GT(met[what], 0u) << what;
  }
  for (int kind = 0; kind < FleetFault::kKinds; ++kind) {
    EXPECT_GT(met["faults of kind " + std::to_string(kind)], 0u) << kind;
  }
}

}  // namespace
}  // namespace quire::sim
