// Several real routers and workers in one thread and virtual time, with clients, tenants and faults
// drawn from a seed; held to what clients get in a world without faults.
//
// The oracle: token ids equal the undisturbed run, each index once and in order; exactly one
// terminal event for each time that a client asked; a client that lost its router, or was told to
// come back, goes on elsewhere and ends well; request_suspect only for a request under which so
// many workers died; at the end no block is held; no prediction of a cache was wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "router/core/api.h"

namespace quire::sim {

struct FleetClient {
  Micros starts_at = 0;
  size_t router = 0;
  std::string tenant;
  GenerateRequest ask;
  Micros takes_after = 0;     // for streams: the time from delta to Taken
  Micros cancels_after = -1;  // from its start; −1: never
  bool poison = false;        // kills each worker with its fifth token there
};

struct FleetFault {
  enum class Kind : uint8_t {
    kCut,         // all links of a worker break
    kCrash,       // kill -9 of a worker, restarted later
    kHold,        // nothing passes between a worker and anybody
    kHoldOneWay,  // nothing passes from a worker to one router, or the other way
    kFreeze,      // its engine stands: a step that does not end
    kDrain,       // SIGTERM, and a new process later
    kRefuse,      // its address refuses connections and its links break; it lives
    kRouterKill,  // kill -9 of a router, restarted later
    kRouterStop,  // SIGSTOP of a router, and SIGCONT
    kResets,      // links of a worker break every 500 ms
    kHoldAll,     // nothing passes between a router and anybody
  };
  static constexpr int kKinds = 11;
  Kind kind = Kind::kCut;
  size_t worker = 0;
  size_t router = 0;
  bool to_worker = false;
  Micros at = 0;
  Micros lasts = 0;
};

struct FleetScenario {
  uint64_t seed = 1;
  size_t workers = 2;
  size_t routers = 1;
  int64_t page_count = 600;
  std::string policy = "prefix-aware";
  uint64_t max_carry_on_tokens = 8192;
  uint32_t window_tokens = 256;
  uint32_t retry_burst = 10;
  int64_t max_waiting = 16;  // of each worker
  std::vector<FleetClient> clients;
  std::vector<FleetFault> faults;
};

FleetScenario DrawFleet(uint64_t seed);

struct FleetResult {
  std::vector<std::string> violations;  // of the oracle
  std::vector<std::string> trace;
  std::map<std::string, uint64_t> met;  // what happened, so that the suite does not grow blind
  std::map<size_t, std::vector<std::vector<TokenId>>> ids;  // by client and choice
};

// What clients get when nothing goes wrong.
FleetResult RunCalm(const FleetScenario& scenario);
// With faults; judged against `calm` unless it is nullptr.
FleetResult RunFleet(const FleetScenario& scenario, const FleetResult* calm);
// Both.
FleetResult RunFleetSeed(uint64_t seed);

}  // namespace quire::sim
