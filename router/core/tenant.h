// Who a request counts for, and what that one may do.
//
// Immutable values, made by whoever reads credentials; shared by the key table and by the requests
// that came in under it, so that a reload changes only what comes later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct TenantProfile {
  std::string name;  // at most kMaxTenantBytes; of queues, quotas and metric labels; empty without
                     // credentials
  uint32_t weight = 1;  // share of what is scarce, against other tenants
  // Who asks for a smaller number, which goes first, gets this.
  std::optional<int32_t> highest_priority;
  // Of the whole fleet; 0 is none.
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // prompt and output
  uint32_t max_concurrent = 0;
  std::vector<std::string> models;  // served names; empty: all
  std::string cache_group;          // who may share cached prompts; empty: the name
  bool delegate = false;            // a gateway: names the tenant in x-quire-tenant
  bool listed = true;               // else a gateway made the name up: no metric has it as a label

  // Whom it shares cached prompts with: a group and a tenant of the same name are two.
  std::string CacheDomain() const {
    return cache_group.empty() ? "tenant:" + name : "group:" + cache_group;
  }
};

// Empty without credentials.
inline std::string NameOf(const std::shared_ptr<const TenantProfile>& tenant) {
  return tenant == nullptr ? std::string() : tenant->name;
}

}  // namespace quire
