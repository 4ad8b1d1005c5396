#include "router/dispatch/placement.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/numerics.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

// How much of a prompt's beginning is hashed to find requests with the same beginning.
constexpr size_t kAffinityTokens = 128;

uint64_t AffinityOf(const Submit& submit) {
  const size_t count = std::min(kAffinityTokens, submit.prompt_ids.size());
  const std::string_view bytes(reinterpret_cast<const char*>(submit.prompt_ids.span().data()),
                               count * sizeof(TokenId));
  return RendezvousWeight(RendezvousKey(submit.salt), bytes);
}

// Where the same bits come out, if such a worker exists at all; that it is busy is no reason to use
// others.
void KeepNumerics(const Placement::Request& request, std::vector<WorkerView>& workers) {
  if (request.numerics_id.empty()) return;
  const auto differs = [&request](const WorkerView& worker) {
    return !SameBits(request.numerics_id, worker.numerics_id);
  };
  if (!request.exact && std::all_of(workers.begin(), workers.end(), differs)) return;
  std::erase_if(workers, differs);
}

// Workers that have just returned take what the others have no room for, and gradually more.
void PreferWarm(std::vector<WorkerView>& workers) {
  const auto starting = [](const WorkerView& worker) {
    return worker.slow_start_cap && worker.live_attempts >= *worker.slow_start_cap;
  };
  if (std::all_of(workers.begin(), workers.end(), starting)) return;
  std::erase_if(workers, starting);
}

}  // namespace

Placement::Placed Placement::Choose(FleetView& view, const Request& request,
                                    PlacementTicket& ticket) {
  const Submit& submit = request.submit;
  RouteQuery query;
  query.excluded = request.excluded;
  query.required_features = request.required_features;
  query.adapter = submit.adapter;
  query.need = {{}, submit.prompt_ids.size() + request.journal.TotalOutputs(), 0};
  query.max_prefill_ahead = max_prefill_ahead_;
  std::vector<WorkerView>& candidates = view.workers;
  KeepFitting(query, candidates);
  KeepNumerics(request, candidates);
  if (candidates.empty()) return {PlaceOutcome::kNobody, {}, false};
  // A waiting request tries again with every step: workers that cannot take it are not looked up.
  KeepThoseWithRoom(query, candidates);
  PreferWarm(candidates);
  if (candidates.empty()) return {PlaceOutcome::kBusy, {}, false};
  // Choices share their prompt; their outputs are their own.
  std::span<const TokenId> outputs;
  if (request.journal.choice_count() == 1) outputs = request.journal.choices().front().outputs;
  const size_t tokens = submit.prompt_ids.size() + outputs.size();
  if (policy_.wants_caches && submit.sampling.prompt_logprobs == 0) {
    if (ticket.chains == nullptr) {
      const std::string adapter = QUIRE_BUG(adapter_missing_in_chains) ? "" : submit.adapter;
      ticket.chains = std::make_unique<PromptChains>(submit.model_id, adapter, submit.salt,
                                                     submit.prompt_ids, outputs);
    }
    QUIRE_CHECK(ticket.chains->token_count() == static_cast<int64_t>(tokens));
    index_.Score(candidates, *ticket.chains);
  }
  const uint64_t work = submit.prompt_ids.size() + request.journal.TotalOutputs();
  if (request.pacer != nullptr) {
    std::erase_if(candidates, [&](const WorkerView& worker) {
      QUIRE_CHECK(worker.cached_tokens <= work);
      return !request.pacer->MayStart(worker.worker, work - worker.cached_tokens);
    });
    if (candidates.empty()) return {PlaceOutcome::kBusy, {}, true};
  }
  query.prompt_tokens = static_cast<uint32_t>(tokens);
  query.turn = turn_;
  query.random = rng_.Next();
  query.affinity = AffinityOf(submit);
  query.session = request.session;
  const RouteChoice choice = quire::Choose(policy_, candidates, query);
  ++turn_;
  ++decisions_[choice.reason];
  QUIRE_CHECK(choice.cached_tokens <= tokens);
  ticket.route = {choice.reason, static_cast<uint32_t>(candidates.size()), choice.cached_tokens};
  ticket.uncached_tokens = work - choice.cached_tokens;
  ticket.prediction = {};
  // The worker decides which of several resumed choices it looks up first.
  const bool fresh = request.journal.choice_count() == 1 || request.journal.TotalOutputs() == 0;
  if (ticket.chains != nullptr && fresh) {
    ticket.prediction = index_.Predict(choice.worker, choice.cached_tokens);
  }
  return {PlaceOutcome::kPlaced, choice, false};
}

void Placement::OnAdmitted(WorkerIndex worker, const Admitted& admitted, PlacementTicket& ticket) {
  if (ticket.chains == nullptr || !ticket.prediction.made) return;
  index_.Judge(worker, ticket.prediction, *ticket.chains, admitted.cached_tokens,
               admitted.event_seq);
  ticket.prediction = {};
}

}  // namespace quire
