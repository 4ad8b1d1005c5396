#include "router/edge/services.h"

#include <algorithm>

#include "common/hex.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

}  // namespace

std::optional<ApiError> CheckModelAccess(const EdgeServices& services,
                                         const std::shared_ptr<const TenantProfile>& tenant,
                                         std::string_view model) {
  if (!NarrowsModels(tenant)) return std::nullopt;
  const std::string name(model);
  if (!name.empty() && MayUse(tenant.get(), model) && services.pipeline.Serves(name)) {
    return std::nullopt;
  }
  return CheckModelAccess(services.pipeline.Models(), tenant.get(), model);
}

bool UsableRequestId(std::string_view id) {
  if (id.empty() || id.size() > kMaxRequestIdBytes) return false;
  return std::all_of(id.begin(), id.end(),
                     [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '\\'; });
}

std::string NewRequestId(Rng& rng) {
  std::string id;
  id.reserve(32);
  AppendHex(rng.Next(), id);
  AppendHex(rng.Next(), id);
  return id;
}

}  // namespace quire
