// Lives many seeds of a simulation: what breaks is told with its seed, some run twice.
//
// QUIRE_SIM_SEED=<seed> runs that one alone (with QUIRE_SIM_TRACE=1 it says what happened),
// QUIRE_SIM_SEEDS=<n> so many. One file of a test binary calls LiveSeeds.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace quire::sim {

inline constexpr int kEnoughFailures = 5;

struct Life {
  std::vector<std::string> violations;
  std::vector<std::string> trace;
};

struct SeedSuite {
  uint64_t seeds = 0;
  std::string replay;  // "test_sim --gtest_filter=FleetSim.*"
  // Lives a seed; `again`: its second time, of which nothing counts but the trace.
  std::function<Life(uint64_t seed, bool again)> live;
  uint64_t twice_every = 20;  // every so manieth seed is run twice
};

// An assertion ends the process; this says in which life.
inline volatile uint64_t running_seed = 0;
inline void SayTheSeed(int) {
  char text[96];
  const int length = std::snprintf(text, sizeof(text), "died in seed %llu (QUIRE_SIM_SEED)\n",
                                   static_cast<unsigned long long>(running_seed));
  if (length > 0 && write(2, text, static_cast<size_t>(length)) < 0) _exit(1);
}

inline uint64_t SeedFromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// How many of `all` seeds a test of its own lives: fewer where QUIRE_SIM_SEEDS says so.
inline uint64_t SeedsOf(uint64_t all) {
  return std::min(all, SeedFromEnvironment("QUIRE_SIM_SEEDS", all));
}

// True when all seeds of the suite were lived and none failed: then what they met can be judged.
inline bool LiveSeeds(const SeedSuite& suite) {
  const uint64_t only = SeedFromEnvironment("QUIRE_SIM_SEED", 0);
  const uint64_t seeds = SeedFromEnvironment("QUIRE_SIM_SEEDS", suite.seeds);
  signal(SIGABRT, SayTheSeed);
  int failed = 0;
  for (uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    running_seed = seed;
    const Life life = suite.live(seed, /*again=*/false);
    for (const std::string& violation : life.violations) {
      ADD_FAILURE() << "seed " << seed << ": " << violation << "\nreplay: QUIRE_SIM_SEED=" << seed
                    << " " << suite.replay;
    }
    if (only > 0 && std::getenv("QUIRE_SIM_TRACE") != nullptr) {
      for (const std::string& line : life.trace) std::printf("%s\n", line.c_str());
    }
    failed += !life.violations.empty();
    if (failed >= kEnoughFailures) break;
    if (seed % suite.twice_every != 0 && only == 0) continue;
    EXPECT_EQ(suite.live(seed, /*again=*/true).trace, life.trace)
        << "seed " << seed << " run twice";
  }
  return only == 0 && seeds == suite.seeds && failed == 0;
}

}  // namespace quire::sim
