// Where an attempt goes: combines the fleet's view, what each worker has cached of this request,
// and the policy's choice; later, checks whether the prediction was right.
//
// Owner: the dispatcher, on the router's executor.
//  1. No cache look-up is made for a request that needs prompt logprobs: its worker makes none
//     either, since it needs the logits of every position.
//  2. Block hashes are made once per attempt, however long the request waits.
//  3. Workers that drain, are ejected, saturated or full of resumed requests, or lack the request's
//     adapter, are filtered out before anything is scored.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "router/dispatch/carry_on_pacer.h"
#include "router/dispatch/journal.h"
#include "router/fleet/cache_index.h"
#include "router/fleet/fleet.h"
#include "router/fleet/prompt_chains.h"
#include "router/routing/policy.h"

namespace quire {

// The state of placing one request, kept between the start and end of its attempts.
struct PlacementTicket {
  std::unique_ptr<PromptChains> chains;  // of the attempt that is to be placed, or was placed
  CachePrediction prediction;
  uint64_t uncached_tokens = 0;  // prefill work where it was placed
  RouteFacts route;              // of its last placement
};

enum class PlaceOutcome : uint8_t {
  kPlaced,
  kBusy,    // some worker serves such requests and has no room now
  kHeld,    // it waits for something of its own, and blocks no other request
  kNobody,  // no worker serves such requests
};

class Placement {
 public:
  // `rng` outlives it.
  Placement(const Policy& policy, const RouterLimits& limits, Rng& rng)
      : policy_(policy),
        max_prefill_ahead_(limits.max_prefill_ahead),
        rng_(rng),
        index_(limits.max_index_bytes, limits.max_snapshots, rng) {}

  struct Request {
    const Submit& submit;    // prompt and names; outlives the ticket's chains
    const Journal& journal;  // its outputs are looked up too
    const std::vector<WorkerIndex>& excluded;
    std::vector<std::string> required_features;
    std::string_view session;
    // The numerics of the outputs so far: workers that compute the same bits are preferred, or,
    // with `exact`, the only candidates. Empty: any.
    std::string_view numerics_id;
    bool exact = false;
    const CarryOnPacer* pacer = nullptr;  // for carry-ons
  };
  struct Placed {
    PlaceOutcome outcome = PlaceOutcome::kNobody;
    RouteChoice choice;  // with kPlaced
    bool paced = false;  // with kBusy: only recompute in flight leaves no room
  };
  // Fills in the ticket for the attempt; leaves the candidates of the choice in the view.
  Placed Choose(FleetView& view, const Request& request, PlacementTicket& ticket);
  // The worker's answer to an attempt that was placed with this ticket.
  void OnAdmitted(WorkerIndex worker, const Admitted& admitted, PlacementTicket& ticket);

  CacheIndex& index() { return index_; }
  const CacheIndex& index() const { return index_; }
  // Decisions so far by their reason.
  const std::map<std::string_view, uint64_t>& decisions() const { return decisions_; }

 private:
  const Policy& policy_;
  const uint64_t max_prefill_ahead_;
  Rng& rng_;
  CacheIndex index_;
  uint64_t turn_ = 0;
  std::map<std::string_view, uint64_t> decisions_;
};

}  // namespace quire
