#include "router/routing/policy.h"

#define XXH_INLINE_ALL  // keys are short: the call would cost as much as the hash
#include <xxhash.h>

#include <algorithm>

#include "common/check.h"

namespace quire {
bool Offers(const WorkerView& worker, const std::vector<std::string>& required_features) {
  return std::all_of(required_features.begin(), required_features.end(),
                     [&](const std::string& feature) {
                       return std::find(worker.features.begin(), worker.features.end(), feature) !=
                              worker.features.end();
                     });
}

uint32_t SubmitCredit(const WorkerView& worker) {
  QUIRE_CHECK(worker.routers_attached > 0);
  return std::max<uint32_t>(1, worker.max_waiting_requests / worker.routers_attached);
}

uint64_t WorkAhead(const WorkerView& worker) {
  return worker.load.waiting_prefill_tokens + worker.load.running_prefill_tokens +
         worker.unseen_tokens;
}

uint64_t RowsWanted(const WorkerView& worker) {
  return uint64_t{worker.load.running_rows} + worker.load.waiting_requests + worker.unseen_submits;
}

uint64_t RendezvousKey(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t RendezvousWeight(uint64_t key, std::string_view worker_id) {
  return XXH3_64bits_withSeed(worker_id.data(), worker_id.size(), key);
}

void KeepFitting(const RouteQuery& query, std::vector<WorkerView>& workers) {
  QUIRE_CHECK_MSG(
      std::is_sorted(workers.begin(), workers.end(),
                     [](const WorkerView& a, const WorkerView& b) { return a.worker < b.worker; }),
      "a fleet view is in index order");
  if (query.excluded.empty() && query.required_features.empty() && query.adapter.empty()) return;
  std::erase_if(workers, [&](const WorkerView& worker) {
    return !Offers(worker, query.required_features) || !Holds(worker.adapters, query.adapter) ||
           std::find(query.excluded.begin(), query.excluded.end(), worker.worker) !=
               query.excluded.end();
  });
}

void KeepThoseWithRoom(const RouteQuery& query, std::vector<WorkerView>& workers) {
  std::erase_if(workers, [](const WorkerView& worker) {
    return worker.unadmitted_submits >= SubmitCredit(worker);
  });
  const auto full = [&](const WorkerView& worker) {
    return !HasRoom(worker, query.need, query.max_prefill_ahead);
  };
  if (!std::all_of(workers.begin(), workers.end(), full)) std::erase_if(workers, full);
}

std::vector<WorkerView> Candidates(const FleetView& view, const RouteQuery& query) {
  std::vector<WorkerView> candidates = view.workers;
  KeepFitting(query, candidates);
  KeepThoseWithRoom(query, candidates);
  return candidates;
}

RouteChoice Choose(const Policy& policy, std::span<const WorkerView> candidates,
                   const RouteQuery& query) {
  QUIRE_CHECK(policy.choose != nullptr && !candidates.empty());
  RouteChoice choice = policy.choose(candidates, query);
  const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const WorkerView& w) { return w.worker == choice.worker; });
  QUIRE_CHECK_MSG(chosen != candidates.end(), "a policy chooses one of its candidates");
  QUIRE_CHECK_MSG(std::find(policy.reasons.begin(), policy.reasons.end(), choice.reason) !=
                      policy.reasons.end(),
                  "and says why");
  choice.cached_tokens = chosen->cached_tokens;
  return choice;
}

}  // namespace quire
