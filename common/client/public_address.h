// Which addresses are of the internet, for connections that a stranger may steer.
//
// Pure; any thread.
#pragma once

#include "common/client_address.h"

namespace quire::client {

// False for loopback, private, shared, link-local, multicast and reserved addresses, and for what
// carries one of those inside (NAT64, 6to4, IPv4 in IPv6).
bool IsPublic(const ClientAddress& address);

}  // namespace quire::client
