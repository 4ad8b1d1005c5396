#include "router/routing/policy.h"

#include <algorithm>

#include "common/check.h"

namespace quire {
namespace {

constexpr Policy kPolicies[] = {
    {"round-robin", &ChooseRoundRobin},
};

bool Offers(const WorkerView& worker, const std::vector<std::string>& required) {
  return std::all_of(required.begin(), required.end(), [&](const std::string& feature) {
    return std::find(worker.features.begin(), worker.features.end(), feature) !=
           worker.features.end();
  });
}

}  // namespace

std::span<const Policy> Policies() { return kPolicies; }

const Policy* FindPolicy(std::string_view name) {
  for (const Policy& policy : kPolicies) {
    if (policy.name == name) return &policy;
  }
  return nullptr;
}

uint32_t SubmitCredit(const WorkerView& worker) {
  QUIRE_CHECK(worker.routers_attached > 0);
  return std::max<uint32_t>(1, worker.max_waiting_requests / worker.routers_attached);
}

std::optional<RouteChoice> Route(const Policy& policy, const FleetView& view,
                                 const RouteQuery& query) {
  QUIRE_CHECK(policy.choose != nullptr);
  std::vector<WorkerView> candidates;
  candidates.reserve(view.workers.size());
  for (const WorkerView& worker : view.workers) {
    QUIRE_CHECK_MSG(candidates.empty() || candidates.back().worker < worker.worker,
                    "a fleet view is in index order");
    if (worker.unadmitted_submits >= SubmitCredit(worker)) continue;
    if (!Offers(worker, query.required_features)) continue;
    const bool excluded = std::find(query.excluded.begin(), query.excluded.end(), worker.worker) !=
                          query.excluded.end();
    if (!excluded) candidates.push_back(worker);
  }
  if (candidates.empty()) return std::nullopt;
  const RouteChoice choice = policy.choose(candidates, query);
  QUIRE_CHECK_MSG(std::any_of(candidates.begin(), candidates.end(),
                              [&](const WorkerView& w) { return w.worker == choice.worker; }),
                  "a policy chooses one of its candidates");
  return choice;
}

}  // namespace quire
