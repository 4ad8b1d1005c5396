#include "router/dispatch/placement.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

// How much of a prompt's beginning says which others begin alike.
constexpr size_t kAffinityTokens = 128;

uint64_t AffinityOf(const Submit& submit) {
  const size_t count = std::min(kAffinityTokens, submit.prompt_ids.size());
  const std::string_view bytes(reinterpret_cast<const char*>(submit.prompt_ids.data()),
                               count * sizeof(TokenId));
  return RendezvousWeight(RendezvousKey(submit.salt), bytes);
}

}  // namespace

std::optional<RouteChoice> Placement::Choose(const FleetView& view, const Request& request,
                                             PlacementTicket& ticket) {
  const Submit& submit = request.submit;
  RouteQuery query;
  query.excluded = request.excluded;
  query.required_features = request.required_features;
  query.need = {{}, submit.prompt_ids.size() + request.journal.TotalOutputs(), 0};
  query.max_prefill_ahead = max_prefill_ahead_;
  // A request that waits asks again with every step: who cannot take it is not looked up.
  std::vector<WorkerView> candidates = Candidates(view, query);
  if (candidates.empty()) return std::nullopt;
  // Choices share their prompt; what one of them has written is its own.
  std::span<const TokenId> outputs;
  if (request.journal.choice_count() == 1) outputs = request.journal.choices().front().outputs;
  const size_t tokens = submit.prompt_ids.size() + outputs.size();
  if (policy_.wants_caches && submit.sampling.prompt_logprobs == 0) {
    if (ticket.chains == nullptr) {
      ticket.chains = std::make_unique<PromptChains>(submit.model_id, submit.adapter, submit.salt,
                                                     submit.prompt_ids, outputs);
    }
    QUIRE_CHECK(ticket.chains->token_count() == static_cast<int64_t>(tokens));
    index_.Score(candidates, *ticket.chains);
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
  ticket.uncached_tokens = tokens - choice.cached_tokens;
  ticket.prediction = {};
  // Which of several resumed choices a worker looks up first is its own affair.
  const bool fresh = request.journal.choice_count() == 1 || request.journal.TotalOutputs() == 0;
  if (ticket.chains != nullptr && fresh) {
    ticket.prediction = index_.Predict(choice.worker, choice.cached_tokens);
  }
  return choice;
}

void Placement::OnAdmitted(WorkerIndex worker, const Admitted& admitted, PlacementTicket& ticket) {
  if (ticket.chains == nullptr || !ticket.prediction.made) return;
  index_.Judge(worker, ticket.prediction, *ticket.chains, admitted.cached_tokens,
               admitted.event_seq);
  ticket.prediction = {};
}

}  // namespace quire
