// Several real routers and workers in one thread and virtual time, with clients, tenants and faults
// drawn from a seed; held to what clients get in a world without faults.
//
// The oracle: token ids, text and logprobs equal the undisturbed run of the model that began the
// answer, with the adapter that its client named, each index once and in order; exactly one
// terminal event for each time that a client asked; an answer that has begun ends in UNAVAILABLE
// only where the faults leave no worker that could go on with it (reach.h); a client that lost its
// router, or was told to come back, goes on elsewhere and ends well; what a router tells its
// clients follows from what passed on its wires (wire_watch.h); the books of routers and workers
// agree; request_suspect only for a request under which so many workers died; at the end no block
// is held, no prediction of a cache was wrong, and what a router knows of a cache is there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "router/core/api.h"

namespace quire::sim {

struct FleetClient {
  Micros starts_at = 0;
  size_t router = 0;
  GenerateRequest ask;        // its tenant included
  std::string adapter;        // digest of the one that ask.model names; empty: none
  Micros takes_after = 0;     // for streams: the time from delta to Taken
  Micros cancels_after = -1;  // from its start; −1: never
  bool poison = false;        // kills each worker with its fifth token there
};

struct FleetFault {
  enum class Kind : uint8_t {
    kCut,           // all links of a worker break
    kCrash,         // kill -9 of a worker, restarted later
    kHold,          // nothing passes between a worker and anybody
    kHoldOneWay,    // nothing passes from a worker to one router, or the other way
    kFreeze,        // its engine stands: a step that does not end
    kDrain,         // SIGTERM, and a new process later
    kRefuse,        // its address refuses connections and its links break; it lives
    kRouterKill,    // kill -9 of a router, restarted later
    kRouterStop,    // SIGSTOP of a router, and SIGCONT
    kResets,        // links of a worker break every 500 ms
    kHoldAll,       // nothing passes between a router and anybody
    kWorkerStop,    // SIGSTOP of a worker, and SIGCONT
    kRouterLate,    // a router that is held up again and again: its timers run late
    kWorkerLate,    // a worker
    kRouterLeap,    // the monotonic clock of a router jumps forward
    kWorkerLeap,    // of a worker
    kWallJump,      // somebody sets the time of day of a router and a worker, forward or back
    kUpdateModel,   // as kDrain, and the new process has another model
    kUpdateBinary,  // as kDrain, and the new process has other features
  };
  static constexpr int kKinds = 19;
  Kind kind = Kind::kCut;
  size_t worker = 0;
  size_t router = 0;
  bool other_way = false;  // one way: to the worker; time of day: back
  Micros at = 0;
  Micros lasts = 0;
};

struct FleetScenario {
  uint64_t seed = 1;
  size_t workers = 2;
  std::vector<bool> plain;  // by worker: begins with a binary that has no optional feature
  // By router: "prefix-aware", or a policy that wants no events, as an older binary might.
  std::vector<std::string> policies;
  // By router: after its world. One that comes late asks workers for their caches that are at work
  // for others, so that what they tell of is scanned and changes at once.
  std::vector<Micros> router_starts;
  int64_t page_count = 600;
  uint64_t max_carry_on_tokens = 8192;
  uint32_t window_tokens = 256;
  uint32_t retry_burst = 10;
  int32_t max_waiting = 16;  // of each worker, and its rows
  int32_t max_rows = 8;
  int32_t snapshot_slice = 4000;
  // Of cache events for a router; more are dropped, and it asks for a snapshot while streams go on.
  size_t max_unsent_hashes = 0;            // 0: as many as ever
  Micros max_delay = 2 * kMicrosPerMilli;  // of a frame; each is drawn by itself
  Micros max_close_delay = 0;              // until an end of a stream hears that the other is gone
  std::vector<FleetClient> clients;
  std::vector<FleetFault> faults;

  bool Has(FleetFault::Kind kind) const;
};

FleetScenario DrawFleet(uint64_t seed);

// What a client has of one choice.
struct FleetAnswer {
  std::vector<TokenId> ids;
  std::string text;                    // all deltas
  std::vector<TokenLogprob> logprobs;  // by index; none where they were not asked for
  std::string finish_reason;
};

struct FleetResult {
  std::vector<std::string> violations;  // of the oracle
  std::vector<std::string> trace;
  std::map<std::string, uint64_t> met;  // what happened, so that the suite does not grow blind
  std::map<size_t, std::vector<FleetAnswer>> answers;   // by client and choice
  std::map<size_t, std::vector<TokenLogprob>> prompts;  // by client: the logprobs of its prompt
};
// What clients get when nothing goes wrong, by model_id.
using CalmAnswers = std::map<std::string, FleetResult>;
CalmAnswers RunCalm(const FleetScenario& scenario);
// With faults.
FleetResult RunFleet(const FleetScenario& scenario, const CalmAnswers& calm);
// The same life, of which nothing counts but the trace.
std::vector<std::string> TraceOfFleet(const FleetScenario& scenario);
// Both.
FleetResult RunFleetSeed(uint64_t seed);

}  // namespace quire::sim
