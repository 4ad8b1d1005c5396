// Every bug that was planted in the router's sources is found by the lives of a fleet
// (tests/support/fleet_sim).
#include "tests/support/fleet_sim/fleet_sim.h"
#include "tests/support/planted_suite.h"

namespace quire::sim {
namespace {

PlantedSuite Suite() {
  return {"router", "quire-router", 20,
          [](uint64_t seed) { return RunFleetSeed(seed).violations; }};
}

TEST(PlantedBugs, AreFoundByTheRandomSuite) { ExpectAllFound(Suite()); }
TEST(PlantedBugs, AreInNoProgramThatPeopleRun) { ExpectInNoProgram(Suite()); }

}  // namespace
}  // namespace quire::sim
