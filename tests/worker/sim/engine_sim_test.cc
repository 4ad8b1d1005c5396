// The random suite: a thousand lives of a worker, judged at every event.
//
// A failure prints its seed; QUIRE_SIM_SEED=<seed> runs that one alone, QUIRE_SIM_SEEDS=<n> so
// many.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/engine_sim/engine_sim.h"

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

void ExpectKept(uint64_t seed, const SimResult& result) {
  for (const std::string& violation : result.violations) {
    ADD_FAILURE() << "seed " << seed << ": " << violation << "\nreplay: QUIRE_SIM_SEED=" << seed
                  << " test_worker_sim --gtest_filter=EngineSim.*";
  }
}

TEST(EngineSim, EveryPromiseIsKeptUnderEverySeed) {
  Coverage coverage;
  const uint64_t only = FromEnvironment("QUIRE_SIM_SEED", 0);
  const uint64_t seeds = FromEnvironment("QUIRE_SIM_SEEDS", kSeeds);
  signal(SIGABRT, SayTheSeed);
  int failed = 0;
  for (uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    running_seed = seed;
    const SimResult result = RunEngineSeed(seed, coverage);
    ExpectKept(seed, result);
    failed += !result.violations.empty();
    if (failed >= 5) break;
    if (seed % kTwiceEvery != 0 && only == 0) continue;
    Coverage again;
    EXPECT_EQ(RunEngineSeed(seed, again).trace, result.trace) << "seed " << seed << " run twice";
  }
  if (only > 0 || seeds != kSeeds || failed > 0) return;
  // What the seeds must have met, so that the suite does not grow blind.
  for (const char* what : {"cuts",
                           "fences",
                           "old hellos",
                           "silences",
                           "slow steps",
                           "failed steps",
                           "freezes",
                           "crashes",
                           "drains",
                           "stuck frames",
                           "resumes",
                           "newer attempts",
                           "repeats of live",
                           "repeats of ended",
                           "finishes",
                           "cancels",
                           "preemptions",
                           "cached",
                           "recomputed",
                           "discarded",
                           "windows used up",
                           "probes",
                           "beam searches",
                           "snapshots in parts",
                           "snapshots overtaken",
                           "snapshot parts under load",
                           "events dropped",
                           "caches judged after events",
                           "caches judged at end markers",
                           "caches judged at rest",
                           "lost with their router",
                           "ends 1",
                           "ends 2",
                           "ends 3",
                           "ends 4",
                           "ends 5",
                           "ends 7",
                           "ends 8",
                           "refused 1",
                           "refused 2",
                           "refused 4",
                           "refused 6",
                           "refused 8",
                           "refused 9"}) {
    EXPECT_GE(coverage.counts[what], 10u) << what;
  }
  for (const auto& [what, count] : coverage.counts) {
    std::printf("%-24s %10llu\n", what.c_str(), static_cast<unsigned long long>(count));
  }
}

}  // namespace
}  // namespace quire::sim
