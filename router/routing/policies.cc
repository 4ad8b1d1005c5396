// The table of the policies.
#include <algorithm>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {

Policy PrefixAware(), LeastLoaded(), PowerOfTwo(), RoundRobin(), Random(), ConsistentHash();

std::span<const Policy> Policies() {
  static const Policy policies[] = {PrefixAware(), LeastLoaded(), PowerOfTwo(),
                                    RoundRobin(),  Random(),      ConsistentHash()};
  return policies;
}

const Policy* FindPolicy(std::string_view name) {
  const std::span<const Policy> all = Policies();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Policy& policy) { return policy.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string_view> RouteReasons(std::span<const Policy> policies) {
  std::vector<std::string_view> reasons;
  for (const Policy& policy : policies) {
    QUIRE_CHECK_MSG(!policy.reasons.empty(), "a choice has a reason");
    reasons.insert(reasons.end(), policy.reasons.begin(), policy.reasons.end());
  }
  std::sort(reasons.begin(), reasons.end());
  reasons.erase(std::unique(reasons.begin(), reasons.end()), reasons.end());
  return reasons;
}

}  // namespace quire
