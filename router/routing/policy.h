// Choosing a worker: pure functions over a snapshot of the fleet, one file per policy, one table of
// them.
//
// Any thread. No clock, no randomness, no state: the query holds everything that a policy needs.
//  1. Workers that can take no more, lack a feature or are excluded are filtered out before a
//     policy sees the fleet.
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
#include "router/routing/room.h"

namespace quire {

struct RouteQuery {
  uint32_t prompt_tokens = 0;
  uint64_t turn = 0;                  // grows by one with every decision of this router
  uint64_t random = 0;                // drawn for this decision
  uint64_t affinity = 0;              // equal for requests with the same beginning
  std::string_view session;           // of the client's header; empty: none
  std::vector<WorkerIndex> excluded;  // workers that have already failed this request
  std::vector<std::string> required_features;
  std::string_view adapter;  // digest of what a worker must hold; empty: none
  // Workers with room for it are preferred to those that only have credit.
  RoomNeed need;
  uint64_t max_prefill_ahead = UINT64_MAX;
};

struct RouteChoice {
  WorkerIndex worker;
  std::string_view reason;     // why this one, for metrics: one of its policy's reasons
  uint32_t cached_tokens = 0;  // the policy that chose; filled in by Choose
};
// The same choice for records and metrics.
struct RouteFacts {
  std::string_view reason{};      // empty: nothing has been chosen yet
  uint32_t candidates = 0;        // workers to choose from
  uint32_t predicted_tokens = 0;  // tokens of the prompt that its cache was expected to hold
};

// A way to choose. Each one has a file that makes it, and a place in the table of policies.cc: the
// flag, its help and the references derive from that.
struct Policy {
  std::string_view name;
  std::string_view help;  // continues a sentence after the name: "takes the next worker."
  // Every reason that its choices give.
  std::vector<std::string_view> reasons;
  // Requires: `candidates` is not empty.
  RouteChoice (*choose)(std::span<const WorkerView> candidates, const RouteQuery& query);
  bool wants_caches = false;  // it looks at cached_tokens
};

// All policies; the first one is the default.
std::span<const Policy> Policies();
const Policy* FindPolicy(std::string_view name);
// Every reason that any of them gives, once.
std::vector<std::string_view> RouteReasons(std::span<const Policy> policies);

// This router may have this many unanswered submits at the worker: its share of the worker's queue.
uint32_t SubmitCredit(const WorkerView& worker);

bool Offers(const WorkerView& worker, const std::vector<std::string>& required_features);

// Drops those that do not serve such a request or have failed it.
void KeepFitting(const RouteQuery& query, std::vector<WorkerView>& workers);
// Drops those without credit, and, if others are left, those without room.
void KeepThoseWithRoom(const RouteQuery& query, std::vector<WorkerView>& workers);
// The fitting workers of the view that can take the request now.
std::vector<WorkerView> Candidates(const FleetView& view, const RouteQuery& query);

// Lets the policy choose. Requires: `candidates` is not empty.
RouteChoice Choose(const Policy& policy, std::span<const WorkerView> candidates,
                   const RouteQuery& query);

// The tokens that the worker has to compute before a new prompt: prefill work that it reported, and
// what was sent since.
uint64_t WorkAhead(const WorkerView& worker);
// Rows that it runs, and requests that will need one.
uint64_t RowsWanted(const WorkerView& worker);
// Highest-random-weight hashing (Thaler and Ravishankar): every router picks the same worker for a
// key, and a worker that comes or goes moves only its own keys.
uint64_t RendezvousKey(std::string_view bytes);
uint64_t RendezvousWeight(uint64_t key, std::string_view worker_id);

}  // namespace quire
