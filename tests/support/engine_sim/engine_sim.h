// One life of a worker in virtual time: the real engine behind the real Attach sessions, routers,
// faults, and at last peace, in which everything has to end.
//
// Safety is judged at every event, liveness at the end. The same seed gives the same life. Nothing
// here knows GoogleTest: a run that dies on an assertion is found by whoever started it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/engine_sim/sim_router.h"

namespace quire::sim {

struct SimResult {
  std::vector<std::string> violations;  // empty: every promise was kept
  uint64_t trace = 0;                   // a hash of all that routers heard, and when
  Micros took = 0;                      // virtual time
};

// `coverage` grows by what the run met.
SimResult RunEngineSeed(uint64_t seed, Coverage& coverage);

}  // namespace quire::sim
