// One real router and two real workers in one thread and virtual time, with clients and faults
// drawn from a seed.
//
// The oracle: what a client got is what it gets in a world without faults, each index once, with
// exactly one end; when all is over nothing is held anywhere; the same seed gives the same trace.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/pipeline/make_pipeline.h"
#include "router/records/request_record.h"
#include "tests/support/fleet_sim/sim_worker.h"

namespace quire::sim {

struct ClientPlan {
  Micros starts_at = 0;
  GenerateRequest ask;
  Micros takes_after = 0;     // for streams: the time from delta to Taken
  Micros cancels_after = -1;  // from its start; −1: never
};

struct FaultPlan {
  enum class Kind : uint8_t { kCut, kCrash, kHold, kFreeze, kDrain };
  Kind kind = Kind::kCut;
  int worker = 0;
  Micros at = 0;
  Micros lasts = 0;
};

struct Scenario {
  uint64_t seed = 1;
  std::vector<ClientPlan> clients;
  std::vector<FaultPlan> faults;
  int64_t page_count = 600;
};

// Everything from the seed: requests of all kinds, faults of all kinds.
Scenario DrawScenario(uint64_t seed);

struct ChoiceResult {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::string text;
  std::string finish_reason;
};

struct ClientResult {
  std::map<uint32_t, ChoiceResult> choices;
  bool started = false;
  std::vector<float> prompt_logprobs;  // with the candidates of each place, when asked for
  std::optional<ApiError> error;
  std::optional<Usage> usage;
  bool cancelled = false;
  int terminal_events = 0;
};

struct RunResult {
  std::vector<ClientResult> clients;
  std::vector<std::string> trace;
  bool all_over = false;  // every client has its end
  bool at_rest = false;   // no worker holds a block or a row
  Micros took = 0;
  // The books: the router's, one for each request that ended, and the workers', by the name of the
  // worker, its epoch, and the key of the attempt.
  std::vector<RequestRecord> records;
  std::map<std::tuple<std::string, uint64_t, uint64_t, uint32_t>, AttemptRecord> attempts;
  std::string metrics;
  // What the router foretold of the workers' caches, by what came of it.
  std::map<std::string, int> predictions;
};

// Runs the scenario to its end, at most five virtual minutes.
RunResult RunScenario(const Scenario& scenario);

}  // namespace quire::sim
