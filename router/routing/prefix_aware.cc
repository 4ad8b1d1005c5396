// Prefix aware: the worker that would answer first and hurt the others least. Work before the
// prompt and the part of it that is not cached, times the rows that share each step. Ties, such as
// an idle fleet that knows nothing of the prompt, go by rendezvous of the prompt's first blocks, so
// that several routers send what begins alike to the same worker without a word between them.
#include <algorithm>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {

RouteChoice ChoosePrefixAware(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  const auto cost = [&query](const WorkerView& worker) {
    const uint64_t cached = std::min(worker.cached_tokens, query.prompt_tokens);
    return (WorkAhead(worker) + query.prompt_tokens - cached) * (RowsWanted(worker) + 1);
  };
  const auto weight = [&query](const WorkerView& worker) {
    return RendezvousWeight(query.affinity, worker.worker_id);
  };
  const WorkerView* best = &candidates.front();
  uint64_t cost_best = cost(*best);
  bool tied = false;
  for (const WorkerView& worker : candidates.subspan(1)) {
    const uint64_t cost_here = cost(worker);
    if (cost_here > cost_best) continue;
    tied = cost_here == cost_best;
    if (tied && weight(worker) <= weight(*best)) continue;
    best = &worker;
    cost_best = cost_here;
  }
  return {best->worker, best->cached_tokens > 0 ? "cached-prefix" : tied ? "rendezvous" : "cost"};
}

}  // namespace quire
