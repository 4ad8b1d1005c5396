// Random: any candidate, whatever the load.
#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

RouteChoice ChooseRandom(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  return {candidates[query.random % candidates.size()].worker, "random"};
}

}  // namespace

Policy Random() {
  return {"random", "takes any worker, whatever its load.", {"random"}, &ChooseRandom};
}

}  // namespace quire
