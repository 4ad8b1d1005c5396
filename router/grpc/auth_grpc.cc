#include "router/grpc/auth_grpc.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include "router/grpc/messages_grpc.h"

namespace quire {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

std::string_view ValueOf(const Metadata& metadata, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

Credentials CredentialsOf(const Metadata& metadata) {
  return {ValueOf(metadata, "authorization"), ValueOf(metadata, "x-quire-tenant"),
          metadata.count("authorization") > 1 || metadata.count("x-quire-tenant") > 1};
}

class KeyGate final : public grpc::AuthMetadataProcessor {
 public:
  explicit KeyGate(KeyRing& keys) : keys_(keys) {}
  // A look-up takes microseconds: not worth a thread of its own.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    if (IsOpenCall(ValueOf(metadata, ":path"))) return grpc::Status::OK;
    const Result<KeyRing::Tenant> tenant = keys_.Authenticate(CredentialsOf(metadata));
    return tenant.ok() ? grpc::Status::OK : ToStatus(tenant.error());
  }

 private:
  KeyRing& keys_;
};

}  // namespace

bool IsOpenCall(std::string_view method) { return method.starts_with("/grpc.health.v1.Health/"); }

std::shared_ptr<grpc::ServerCredentials> MakeEdgeCredentials(KeyRing* keys) {
  if (keys == nullptr || !keys->required()) return grpc::InsecureServerCredentials();
  // Only credentials that count as secure may carry a gate. The bytes come through a socket pair
  // from the front, which is what "local" stands for, and look the same as without.
  auto credentials = grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(std::make_shared<KeyGate>(*keys));
  return credentials;
}

Result<KeyRing::Tenant> TenantOf(const grpc::CallbackServerContext& context, KeyRing* keys) {
  if (keys == nullptr) return KeyRing::Tenant();
  Result<KeyRing::Tenant> tenant = keys->Authenticate(CredentialsOf(context.client_metadata()));
  if (tenant.ok()) keys->CountRequest(tenant.value());
  return tenant;
}

}  // namespace quire
