// What a tenant may request: models, and the priority over others.
//
// Pure functions; any thread. A null profile may do everything.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "router/core/api.h"

namespace quire {

// Whether there are models that the tenant may not use.
inline bool NarrowsModels(const std::shared_ptr<const TenantProfile>& tenant) {
  return tenant != nullptr && !tenant->models.empty();
}

// Whether the profile may use a served name.
bool MayUse(const TenantProfile* tenant, std::string_view model);

// The models that the tenant may see.
std::vector<ModelEntry> VisibleModels(std::vector<ModelEntry> models, const TenantProfile* tenant);

// kNotFound, naming what the tenant may use, when `model` is not served to it: the error does not
// reveal whether it exists for others. An empty name is the only model that is served. An adapter
// is a name of its own, which MODEL:ADAPTER needs too.
std::optional<ApiError> CheckModelAccess(const std::vector<ModelEntry>& models,
                                         const TenantProfile* tenant, std::string_view model);

// The tenant's name on a request, with its priority limited to the tenant's highest.
void ApplyTenant(std::shared_ptr<const TenantProfile> tenant, GenerateRequest& request);

}  // namespace quire
