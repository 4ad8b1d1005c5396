// Least loaded: the fewest rows needed, then the least work ahead; equals take turns.
#include <tuple>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

RouteChoice ChooseLeastLoaded(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  const auto load = [](const WorkerView& worker) {
    return std::tuple(RowsWanted(worker), WorkAhead(worker));
  };
  const size_t first = query.turn % candidates.size();
  const WorkerView* best = &candidates[first];
  for (size_t i = 1; i < candidates.size(); ++i) {
    const WorkerView& worker = candidates[(first + i) % candidates.size()];
    if (load(worker) < load(*best)) best = &worker;
  }
  return {best->worker, "least-loaded"};
}

}  // namespace

Policy LeastLoaded() {
  return {"least-loaded",
          "takes the worker with the fewest rows, then with the least prefill work.",
          {"least-loaded"},
          &ChooseLeastLoaded};
}

}  // namespace quire
