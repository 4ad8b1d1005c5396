#include "router/grpc/auth.h"

#include "router/grpc/messages.h"

namespace quire {
namespace {

Credentials CredentialsOf(const GrpcCallHead& head) {
  return {head.Find("authorization"), head.Find("x-quire-tenant"),
          head.Count("authorization") > 1 || head.Count("x-quire-tenant") > 1};
}

// Calls that need no key: probes.
bool IsOpenCall(std::string_view path) { return path.starts_with(kHealthPath); }

constexpr uint32_t kComeBackMs = 1000;

}  // namespace

std::optional<GrpcEnd> CheckKey(const GrpcCallHead& head, KeyRing* keys, ClientSeat& seat) {
  if (seat.probes_only && head.path != std::string(kHealthPath) + "Check") {
    return GrpcEnd(absl::UnavailableError("too many connections are open, so this one may call " +
                                          std::string(kHealthPath) + "Check alone"),
                   kComeBackMs);
  }
  if (keys == nullptr || !keys->required() || IsOpenCall(head.path)) return std::nullopt;
  Credentials credentials = CredentialsOf(head);
  credentials.address = seat.ClientOf(head.All("x-forwarded-for"));
  const Result<KeyRing::Tenant> tenant = keys->Authenticate(credentials);
  if (tenant.ok()) {
    seat.has_shown_key = true;
    return std::nullopt;
  }
  return EndOf(tenant.error());
}

KeyRing::Tenant TenantIn(const GrpcCallHead& head, KeyRing* keys) {
  if (keys == nullptr) return nullptr;
  Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(head));
  return tenant.ok() ? std::move(tenant.value()) : nullptr;
}

std::string OwnerOf(const GrpcCallHead& head, KeyRing* keys) {
  return NameOf(TenantIn(head, keys));
}

Result<KeyRing::Tenant> TenantOf(const GrpcCallHead& head, KeyRing* keys) {
  if (keys == nullptr) return KeyRing::Tenant();
  Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(head));
  if (tenant.ok()) keys->CountRequest(tenant.value());
  return tenant;
}

}  // namespace quire
