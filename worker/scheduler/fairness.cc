#include "worker/scheduler/fairness.h"

#include <algorithm>

#include "common/check.h"

namespace quire {

Tenant& FairShare::Join(std::string_view name) {
  auto found = tenants_.find(name);
  if (found == tenants_.end()) {
    auto tenant = std::make_unique<Tenant>();
    tenant->name = std::string(name);
    found = tenants_.emplace(tenant->name, std::move(tenant)).first;
  }
  Tenant& tenant = *found->second;
  if (tenant.sequences++ == 0) present_.push_back(&tenant);
  return tenant;
}

void FairShare::Leave(Tenant& tenant) {
  QUIRE_CHECK(tenant.sequences > 0);
  if (--tenant.sequences > 0) return;
  QUIRE_CHECK(tenant.held_tokens == 0 && tenant.running == 0 && tenant.rows_wanted == 0);
  QUIRE_CHECK(!tenant.busy && tenant.waiting.empty());
  present_.erase(std::find(present_.begin(), present_.end(), &tenant));
  // With no busy tenant left, the differences among the idle ones remain; the next to come starts
  // at the last level.
  if (present_.empty()) floor_ = std::max(floor_, tenant.served);
  if (tenant.served <= floor_) {
    tenants_.erase(tenants_.find(tenant.name));
  } else if (idle_count() > kMaxIdleTenants) {
    ForgetIdle();
  }
}

// The least served idle tenant loses least by being forgotten.
void FairShare::ForgetIdle() {
  auto least = tenants_.end();
  for (auto at = tenants_.begin(); at != tenants_.end(); ++at) {
    if (at->second->sequences > 0) continue;
    if (least == tenants_.end() || at->second->served < least->second->served) least = at;
  }
  QUIRE_CHECK(least != tenants_.end());
  tenants_.erase(least);
}

void FairShare::SetBusy(Tenant& tenant, bool busy) {
  if (tenant.busy == busy) return;
  tenant.busy = busy;
  busy_count_ += busy ? 1 : -1;
  if (busy) tenant.served = std::max(tenant.served, floor_);
}

void FairShare::StartPass() {
  Tenant* least = nullptr;
  for (Tenant* tenant : present_) {
    tenant->served += tenant->held_tokens * kHeldTokenService;
    if (tenant->busy && (least == nullptr || tenant->served < least->served)) least = tenant;
  }
  if (least != nullptr) floor_ = std::max(floor_, least->served);
}

void FairShare::CheckInvariants() const {
  int32_t busy = 0;
  for (const Tenant* tenant : present_) {
    QUIRE_CHECK(tenant->sequences > 0 && tenant->held_tokens >= 0 && tenant->running >= 0);
    QUIRE_CHECK(tenant->busy == (tenant->running > 0 || tenant->rows_wanted > 0));
    busy += tenant->busy;
  }
  QUIRE_CHECK(busy == busy_count_);
  QUIRE_CHECK(idle_count() <= kMaxIdleTenants);
}

}  // namespace quire
