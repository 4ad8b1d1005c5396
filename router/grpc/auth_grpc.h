// API keys on gRPC: one gate in front of every call, whatever service it is for, and the tenant of
// a call that passed it.
//
// The gate runs on gRPC's own threads, before a message is read; Tenants are looked up again by the
// handler, since what a gate knows does not travel with a call.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "router/core/result.h"
#include "router/keys/key_ring.h"

namespace quire {

// Calls that need no key: probes.
bool IsOpenCall(std::string_view method);

// For connections that the front hands over. `keys` may be nullptr and outlives the server.
std::shared_ptr<grpc::ServerCredentials> MakeEdgeCredentials(KeyRing* keys);

// nullptr where no keys are configured. Counts the call for its tenant.
Result<KeyRing::Tenant> TenantOf(const grpc::CallbackServerContext& context, KeyRing* keys);

}  // namespace quire
