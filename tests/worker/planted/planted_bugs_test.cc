// Every bug that was planted in the worker's sources is found by the lives of a worker
// (tests/support/engine_sim).
#include "tests/support/engine_sim/engine_sim.h"
#include "tests/support/planted_suite.h"

namespace quire::sim {
namespace {

PlantedSuite Suite() {
  return {"worker", "quire-worker", 20, [coverage = Coverage()](uint64_t seed) mutable {
            return RunEngineSeed(seed, coverage).violations;
          }};
}

TEST(PlantedBugs, AreFoundByTheRandomSuite) { ExpectAllFound(Suite()); }
TEST(PlantedBugs, AreInNoProgramThatPeopleRun) { ExpectInNoProgram(Suite()); }

}  // namespace
}  // namespace quire::sim
