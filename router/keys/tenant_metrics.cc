#include "router/keys/tenant_metrics.h"

namespace quire {

Counter& TenantMetrics::Add(const std::string& label) {
  return metrics_.AddCounter({prefix_ + "_tenant_requests_total",
                              "Requests that came in under a tenant's keys.",
                              {{"tenant", label}}});
}

void TenantMetrics::Know(const std::vector<std::string>& tenants) {
  MutexLock lock(mutex_);
  if (other_ == nullptr) other_ = &Add("other");
  for (const std::string& tenant : tenants) {
    if (counters_.size() >= kMaxTenantLabels) break;
    if (tenant == "other" || counters_.count(tenant) > 0) continue;
    counters_.emplace(tenant, &Add(tenant));
  }
}

void TenantMetrics::Count(std::string_view tenant) {
  MutexLock lock(mutex_);
  const auto found = counters_.find(tenant);
  Counter* counter = found == counters_.end() ? other_ : found->second;
  if (counter != nullptr) counter->Add();
}

}  // namespace quire
