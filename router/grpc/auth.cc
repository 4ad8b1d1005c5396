#include "router/grpc/auth.h"

#include "router/grpc/messages.h"

namespace quire {
namespace {

Credentials CredentialsOf(const GrpcCallHead& head) {
  return {head.Find("authorization"), head.Find("x-quire-tenant"),
          head.Count("authorization") > 1 || head.Count("x-quire-tenant") > 1};
}

// Calls that need no key: probes.
bool IsOpenCall(std::string_view path) { return path.starts_with("/grpc.health.v1.Health/"); }

}  // namespace

std::optional<GrpcEnd> CheckKey(const GrpcCallHead& head, KeyRing* keys) {
  if (keys == nullptr || !keys->required() || IsOpenCall(head.path)) return std::nullopt;
  const Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(head));
  if (tenant.ok()) return std::nullopt;
  return EndOf(tenant.error());
}

std::string OwnerOf(const GrpcCallHead& head, KeyRing* keys) {
  if (keys == nullptr) return "";
  const Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(head));
  return tenant.ok() ? NameOf(tenant.value()) : "";
}

Result<KeyRing::Tenant> TenantOf(const GrpcCallHead& head, KeyRing* keys) {
  if (keys == nullptr) return KeyRing::Tenant();
  Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(head));
  if (tenant.ok()) keys->CountRequest(tenant.value());
  return tenant;
}

}  // namespace quire
