// Round robin: the next candidate in index order, whatever the load.
#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {

RouteChoice ChooseRoundRobin(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  return {candidates[query.turn % candidates.size()].worker, "round-robin"};
}

}  // namespace quire
