// API keys on gRPC: one check for every call of every service, and the tenant of a call that passed
// it.
//
// Any thread. The check runs before a message is read; a handler repeats it for each message, since
// keys may have changed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/client_seat.h"
#include "common/grpc/call_head.h"
#include "router/core/result.h"
#include "router/keys/key_ring.h"

namespace quire {

// Why a call may not come in; probes need no key. `keys`: nullptr admits every call.
std::optional<GrpcEnd> CheckKey(const GrpcCallHead& head, KeyRing* keys, ClientSeat& seat);

// The current tenant of the call; nullptr: it came without a key.
KeyRing::Tenant TenantIn(const GrpcCallHead& head, KeyRing* keys);
// The tenant's name; empty when it has none.
std::string OwnerOf(const GrpcCallHead& head, KeyRing* keys);

// nullptr where no keys are configured. Counts the call for its tenant.
Result<KeyRing::Tenant> TenantOf(const GrpcCallHead& head, KeyRing* keys);

}  // namespace quire
