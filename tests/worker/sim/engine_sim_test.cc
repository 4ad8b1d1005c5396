// The random suite: a thousand lives of a worker, judged at every event.
#include "tests/support/engine_sim/engine_sim.h"

#include <cerrno>

#include "tests/support/seed_suite.h"

// Where a device makes lives slow there are fewer.
#ifndef QUIRE_SIM_LIVES
#define QUIRE_SIM_LIVES 1000
#endif

namespace quire::sim {
namespace {

TEST(EngineSim, EveryPromiseIsKeptUnderEverySeed) {
  Coverage coverage;
  SeedSuite suite;
  suite.seeds = QUIRE_SIM_LIVES;
  suite.replay = std::string(program_invocation_short_name) + " --gtest_filter=EngineSim.*";
  suite.live = [&coverage](uint64_t seed, bool again) {
    Coverage twice;
    SimResult result = RunEngineSeed(seed, again ? twice : coverage);
    return Life{result.violations, {std::to_string(result.trace)}};
  };
  const bool all = LiveSeeds(suite);
  for (const auto& [what, count] : coverage.counts) {
    std::printf("%-24s %10llu\n", what.c_str(), static_cast<unsigned long long>(count));
  }
  if (!all) return;
  if (QUIRE_SIM_LIVES < 1000) {  // what a device has to do with
    for (const char* what : {"failed steps", "devices lost in a step", "preemptions", "cached",
                             "recomputed", "resumes", "beam searches", "constrained rows",
                             "scored in parts", "accepted of the drafted"}) {
      EXPECT_GE(coverage.counts[what], 1u) << what;
    }
    return;
  }
  // What the seeds must have met, so that the suite does not grow blind.
  for (const char* what : {"cuts",
                           "fences",
                           "old hellos",
                           "silences",
                           "slow steps",
                           "failed steps",
                           "freezes",
                           "crashes",
                           "devices lost",
                           "devices lost in a step",
                           "attaches ended with the device",
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
                           "constrained rows",
                           "forced",
                           "accepted of the forced",
                           "drafted",
                           "accepted of the drafted",
                           "proposals compared",
                           "draft model's evictions",
                           "draft model's hits",
                           "accepted of predictions",
                           "rejected of predictions",
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
                           "refused 9",
                           "refused 10",
                           "scored prompts",
                           "scored in parts",
                           "adapters moved"}) {
    EXPECT_GE(coverage.counts[what], 20u) << what;
  }
}

}  // namespace
}  // namespace quire::sim
