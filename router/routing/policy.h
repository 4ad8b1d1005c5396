// Choosing a worker: pure functions over a snapshot of the fleet, one file per policy, one table of
// them.
//
// Any thread. No clock, no randomness, no state: what a policy needs comes in with the query.
//  1. Workers that can take no more, lack a feature or are excluded are filtered before a policy
//     sees the fleet.
//  2. The same view and query give the same choice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/limits.h"
#include "router/fleet/fleet.h"

namespace quire {

struct RouteQuery {
  uint32_t prompt_tokens = 0;
  uint64_t turn = 0;                  // grows by one with every decision of this router
  std::vector<WorkerIndex> excluded;  // that this request has already failed on
  std::vector<std::string> required_features;
};

struct RouteChoice {
  WorkerIndex worker;
  std::string_view reason;  // why this one, for logs and metrics
};

// `candidates` is not empty.
using PolicyFunction = RouteChoice (*)(std::span<const WorkerView> candidates,
                                       const RouteQuery& query);
struct Policy {
  std::string_view name;
  PolicyFunction choose;
};

// All policies; the first one is the default.
std::span<const Policy> Policies();
const Policy* FindPolicy(std::string_view name);

// This router may have so many submits unanswered at the worker: its share of the worker's queue.
uint32_t SubmitCredit(const WorkerView& worker);

// Filters, then lets the policy choose. Empty: no worker can take the request now.
std::optional<RouteChoice> Route(const Policy& policy, const FleetView& view,
                                 const RouteQuery& query);

// The policies, one per file.
RouteChoice ChooseRoundRobin(std::span<const WorkerView> candidates, const RouteQuery& query);

}  // namespace quire
