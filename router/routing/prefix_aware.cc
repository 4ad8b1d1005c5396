// Prefix aware: the worker that would answer first and delay the others least. The cost is the work
// before the prompt plus the part of it that is not cached, times the rows that share each step.
// Ties, such as an idle fleet that knows nothing of the prompt, are resolved by rendezvous of the
// prompt's first blocks, so that several routers send prompts with the same beginning to the same
// worker without communication.
//
// Where all rows are taken, a prompt waits for the end of an answer, which neither the cached part
// nor the work ahead predicts: each end that it waits for counts as a little more work. Much more
// would give up long prefixes for any free row, and with them the caches of a full fleet.
#include <algorithm>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

constexpr uint64_t kTokensOfAnEnd = 64;

// Answers that have to end before a new one has a row.
uint64_t EndsAhead(const WorkerView& worker) {
  const uint64_t rows = RowsWanted(worker) + 1;
  const bool waits = worker.max_num_seqs > 0 && rows > worker.max_num_seqs;
  return waits ? rows - worker.max_num_seqs : 0;
}

RouteChoice ChoosePrefixAware(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  const auto cost = [&query](const WorkerView& worker) {
    const uint64_t cached = std::min(worker.cached_tokens, query.prompt_tokens);
    const uint64_t work = WorkAhead(worker) + query.prompt_tokens - cached;
    return (work + kTokensOfAnEnd * EndsAhead(worker)) * (RowsWanted(worker) + 1);
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

}  // namespace

Policy PrefixAware() {
  return {"prefix-aware",
          "weighs what each worker has cached of the prompt against the work that it has.",
          {"cached-prefix", "cost", "rendezvous"},
          &ChoosePrefixAware,
          /*wants_caches=*/true};
}

}  // namespace quire
