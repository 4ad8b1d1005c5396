// The tenant that a request counts for, and what that tenant may do.
//
// Immutable values, made by the code that reads credentials; shared by the key table and by the
// requests that came in under it, so that a reload changes only later requests.
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
  // A request with a smaller number, which would go first, gets this one.
  std::optional<int32_t> highest_priority;
  // Limits for the whole fleet; 0: no limit.
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // prompt and output
  uint32_t max_concurrent = 0;
  std::vector<std::string> models;  // served names; empty: all
  std::string cache_group;          // the group that may share cached prompts; empty: the name
  bool delegate = false;            // a gateway: names the tenant in x-quire-tenant
  bool listed = true;  // false: a gateway chose the name, and no metric has it as a label

  // The domain within which it shares cached prompts: a group and a tenant of the same name are two
  // domains.
  std::string CacheDomain() const {
    return cache_group.empty() ? "tenant:" + name : "group:" + cache_group;
  }
};

// Empty without credentials.
inline std::string NameOf(const std::shared_ptr<const TenantProfile>& tenant) {
  return tenant == nullptr ? std::string() : tenant->name;
}

}  // namespace quire
