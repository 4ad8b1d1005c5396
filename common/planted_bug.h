// A bug that is planted in the source to prove that the random suites find bugs of its kind.
//
// QUIRE_BUG(name) is the constant false in every program that people run. One test binary compiles
// the worker's sources with QUIRE_PLANTED_BUGS, switches one bug on by name and runs the unchanged
// suite (tests/worker/planted). Only .cc files that cmake/tests.cmake lists may plant: a header
// would differ between the two builds.
#pragma once

#ifdef QUIRE_PLANTED_BUGS
#include <string_view>
namespace quire {
bool PlantedBugIsOn(std::string_view name);  // defined by that test binary
}  // namespace quire
// The prefix marks the names in the binary, so that their absence from programs can be checked.
#define QUIRE_BUG(name) (::quire::PlantedBugIsOn("planted:" #name))
#else
#define QUIRE_BUG(name) (false)
#endif
