// What is known of the client of one connection, and what it does there: by it a port that is full
// decides who gives way.
//
// Owners: the port, and who serves the connection (a shared_ptr each); event loop only.
#pragma once

#include <functional>
#include <string_view>

#include "common/client_address.h"

namespace quire {

struct ClientSeat {
  ClientAddress address;  // the peer's, or whom a proxy said at the beginning that it speaks for
  const TrustedProxies* proxies = nullptr;  // `address` is one of these, and names clients itself
  bool probes_only = false;                 // let in past the limit, for probes and nothing else
  bool has_shown_key = false;
  // A request runs that is more than a probe. Set by who serves, as long as it does.
  std::function<bool()> at_work = nullptr;

  // Whose request it is, by its X-Forwarded-For.
  ClientAddress ClientOf(std::string_view forwarded_for) const {
    return proxies == nullptr ? address : proxies->ClientOf(address, forwarded_for);
  }
};

}  // namespace quire
