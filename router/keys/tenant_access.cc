#include "router/keys/tenant_access.h"

#include <algorithm>

namespace quire {
namespace {

constexpr size_t kMaxShownNameBytes = 256;

}  // namespace

bool MayUse(const TenantProfile* tenant, std::string_view model) {
  return tenant == nullptr || tenant->models.empty() ||
         std::find(tenant->models.begin(), tenant->models.end(), model) != tenant->models.end();
}

std::vector<ModelEntry> VisibleModels(std::vector<ModelEntry> models, const TenantProfile* tenant) {
  std::erase_if(models, [&](const ModelEntry& model) { return !MayUse(tenant, model.name); });
  return models;
}

std::optional<ApiError> CheckModelAccess(const std::vector<ModelEntry>& models,
                                         const TenantProfile* tenant, std::string_view model) {
  if (tenant == nullptr || tenant->models.empty()) return std::nullopt;
  if (model.empty() && models.size() == 1) model = models.front().name;
  std::string visible;
  for (const ModelEntry& entry : VisibleModels(models, tenant)) {
    if (entry.name == model) return std::nullopt;
    visible += (visible.empty() ? "" : ", ") + entry.name;
  }
  return ApiError{ApiCode::kNotFound,
                  "model: \"" + std::string(model.substr(0, kMaxShownNameBytes)) +
                      "\" does not exist or this API key may not use it; it may use: " +
                      (visible.empty() ? "none that is served now" : visible),
                  "model", 0};
}

void ApplyTenant(std::shared_ptr<const TenantProfile> tenant, GenerateRequest& request) {
  if (tenant && tenant->highest_priority) {
    request.priority = std::max(request.priority, *tenant->highest_priority);
  }
  request.tenant = std::move(tenant);
}

}  // namespace quire
