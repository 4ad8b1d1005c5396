#include "router/edge/services.h"

#include <algorithm>

#include "router/keys/tenant_access.h"

namespace quire {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

}  // namespace

std::optional<ApiError> CheckModelAccess(const EdgeServices& services,
                                         const std::shared_ptr<const TenantProfile>& tenant,
                                         std::string_view model) {
  if (!NarrowsModels(tenant)) return std::nullopt;
  return CheckModelAccess(services.pipeline.Models(), tenant.get(), model);
}

bool UsableRequestId(std::string_view id) {
  if (id.empty() || id.size() > kMaxRequestIdBytes) return false;
  return std::all_of(id.begin(), id.end(),
                     [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '\\'; });
}

std::string NewRequestId(Rng& rng) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id(32, '0');
  for (size_t half = 0; half < 2; ++half) {
    uint64_t bits = rng.Next();
    for (size_t i = 0; i < 16; ++i, bits >>= 4) id[16 * half + i] = kHex[bits & 15];
  }
  return id;
}

}  // namespace quire
