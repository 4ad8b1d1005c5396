// The header of the PROXY protocol, versions 1 and 2, which a proxy sends before what its client
// sends (haproxy's proxy-protocol.txt).
//
// Pure; any thread. Only the bytes of a trusted proxy are read with this.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "common/client_address.h"

namespace quire {

inline constexpr size_t kMaxProxyHeaderBytes = 1024;

struct ProxyHeader {
  enum class Kind {
    kNone,    // the bytes begin with something else
    kMore,    // the bytes may be the beginning of a header
    kWhole,   // the first `bytes` are a header
    kBroken,  // the bytes begin like a header, but are not one
  };
  Kind kind = Kind::kNone;
  size_t bytes = 0;
  std::optional<ClientAddress> client = {};  // nullopt: the proxy speaks for itself
};

ProxyHeader ReadProxyHeader(std::string_view bytes);

}  // namespace quire
