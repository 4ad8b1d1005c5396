// What is known of the client of one connection, and what it does there; a full port decides by
// this which connection to close.
//
// Owners: the port, and the server of the connection (a shared_ptr each); event loop only.
#pragma once

#include <functional>
#include <string_view>

#include "common/client_address.h"

namespace quire {

struct ClientSeat {
  ClientAddress address;  // the peer's, or the one that a proxy stated at the beginning
  const TrustedProxies* proxies =
      nullptr;               // `address` is a trusted proxy's, which names clients itself
  bool probes_only = false;  // admitted past the limit, for probes only
  bool has_shown_key = false;
  // A request runs that is more than a probe. The server of the connection sets it while one does.
  std::function<bool()> at_work = nullptr;

  // The client of the request, from its X-Forwarded-For.
  ClientAddress ClientOf(std::string_view forwarded_for) const {
    return proxies == nullptr ? address : proxies->ClientOf(address, forwarded_for);
  }
};

}  // namespace quire
