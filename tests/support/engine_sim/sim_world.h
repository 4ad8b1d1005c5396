// What all routers of a simulated world share, and what its oracles write down.
//
// Owned by the world's Life (engine_sim.cc); one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "tests/support/engine_sim/sim_scenario.h"
#include "tests/support/guess_drafter.h"

namespace quire::sim {

// What a run of many seeds must have met, so that the suite does not grow blind.
struct Coverage {
  std::map<std::string, uint64_t> counts;
  void Add(const std::string& what, uint64_t count = 1) { counts[what] += count; }
};

// The sum over a set of cached blocks, in any order.
class CacheSum {
 public:
  void Add(uint32_t kind, uint64_t hash) {
    VirtualRng mix(hash * 16 + kind);
    value_ += mix.Next();
    ++count_;
  }
  uint64_t value() const { return value_ * 31 + count_; }

 private:
  uint64_t value_ = 0;
  uint64_t count_ = 0;
};

class SimRouter;

struct SimWorld {
  VirtualWorld& world;
  Dialer& dialer;
  const Scenario& scenario;
  Coverage& coverage;
  std::vector<std::string> violations;
  uint64_t trace = 0;          // a hash of everything that routers heard, and when
  Micros excuse_us = 0;        // time for which the engine did nothing, by our own doing
  Micros slow_us = 0;          // by which steps were made slower, all together
  Micros device_lost_at = -1;  // when the engine found it lost last; −1: never
  bool draining = false;
  std::map<RouterInstance, SimRouter*> routers{};
  test::GuessDrafter guesses{scenario.wrong_drafts, scenario.engine.vocab_size};
  std::set<uint64_t> failed_seeds{};  // of requests that were in a step that failed
  // By epoch and event number, where rounds ended: the sum of what the pool has published.
  std::map<uint64_t, std::map<uint64_t, uint64_t>> cache_truth{};

  Micros Now() const { return world.clock().Now(); }
  void Violate(const std::string& what);
  void Trace(std::string_view bytes);
};

}  // namespace quire::sim
