// Power of two choices (Mitzenmacher): of two workers drawn at random the one with less to do.
#include <tuple>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

RouteChoice ChoosePowerOfTwo(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  const size_t count = candidates.size();
  const size_t first = query.random % count;
  if (count == 1) return {candidates[first].worker, "only-one"};
  const size_t second = (first + 1 + (query.random >> 32) % (count - 1)) % count;
  const auto load = [](const WorkerView& worker) {
    return std::tuple(RowsWanted(worker), WorkAhead(worker));
  };
  const bool swap = load(candidates[second]) < load(candidates[first]);
  return {candidates[swap ? second : first].worker, "power-of-two"};
}

}  // namespace

Policy PowerOfTwo() {
  return {"power-of-two",
          "takes the less loaded of two workers drawn at random.",
          {"only-one", "power-of-two"},
          &ChoosePowerOfTwo};
}

}  // namespace quire
