#include "router/keys/tenant_access.h"

#include <algorithm>

namespace quire {
namespace {

constexpr size_t kMaxShownNameBytes = 256;

// Whether a name is MODEL:ADAPTER; no model itself may have that name.
bool IsAdapter(std::string_view name, const ModelEntry& entry) {
  return !entry.parent.empty() && name.size() > entry.name.size() && name.ends_with(entry.name) &&
         name[name.size() - entry.name.size() - 1] == ':';
}

// The meaning of an absent name: the only model, which may have adapters.
std::string_view OnlyModel(const std::vector<ModelEntry>& models) {
  const ModelEntry* only = nullptr;
  for (const ModelEntry& entry : models) {
    if (!entry.parent.empty()) continue;
    if (only != nullptr) return "";
    only = &entry;
  }
  return only == nullptr ? std::string_view() : only->name;
}

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
  if (model.empty()) model = OnlyModel(models);
  const bool listed = std::any_of(models.begin(), models.end(),
                                  [&](const ModelEntry& entry) { return entry.name == model; });
  std::string visible;
  for (const ModelEntry& entry : VisibleModels(models, tenant)) {
    if (entry.name == model || (!listed && IsAdapter(model, entry))) return std::nullopt;
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
