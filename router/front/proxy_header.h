// The header of the PROXY protocol, versions 1 and 2, which a proxy sends before what its client
// sends (haproxy's proxy-protocol.txt).
//
// Pure; any thread. Only what a trusted proxy sends is read so.
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
    kMore,    // they may be the beginning of one
    kWhole,   // `bytes` of them are one
    kBroken,  // they begin like one, and are none
  };
  Kind kind = Kind::kNone;
  size_t bytes = 0;
  std::optional<ClientAddress> client = {};  // nullopt: the proxy speaks for itself
};

ProxyHeader ReadProxyHeader(std::string_view bytes);

}  // namespace quire
