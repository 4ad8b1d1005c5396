// Round robin: the next candidate in index order, whatever the load.
#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

RouteChoice ChooseRoundRobin(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  return {candidates[query.turn % candidates.size()].worker, "round-robin"};
}

}  // namespace

Policy RoundRobin() {
  return {"round-robin",
          "takes the workers in turn, whatever their load.",
          {"round-robin"},
          &ChooseRoundRobin};
}

}  // namespace quire
