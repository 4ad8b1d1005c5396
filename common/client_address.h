// IP addresses of clients and ranges of them: the client at the other end, and the proxies that may
// name their clients.
//
// Plain values; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire {

// IPv4 is mapped into IPv6 (::ffff:0:0/96). All zeros: not known.
struct ClientAddress {
  std::array<uint8_t, 16> bytes{};

  // "192.0.2.1", "2001:db8::1", "[2001:db8::1]:443", "192.0.2.1:80".
  static std::optional<ClientAddress> Parse(std::string_view text);
  static ClientAddress OfV4(const uint8_t* four);
  static ClientAddress OfV6(const uint8_t* sixteen);
  // The address of the peer of a connected socket.
  static ClientAddress OfPeer(int fd);

  bool loopback() const;
  // An IPv6 client has a /64 to choose its addresses from: shares are counted by this prefix.
  ClientAddress Share() const;
  auto operator<=>(const ClientAddress&) const = default;
};

struct AddressRange {
  ClientAddress first;
  int bits = 128;  // bits that are equal in the whole range

  // "10.0.0.0/8", "2001:db8::/32", or one address. INVALID_ARGUMENT says what works.
  static absl::StatusOr<AddressRange> Parse(std::string_view text);
  bool Contains(const ClientAddress& address) const;
};

class TrustedProxies {
 public:
  TrustedProxies() = default;
  static absl::StatusOr<TrustedProxies> Parse(const std::vector<std::string>& ranges);

  bool Contains(const ClientAddress& address) const;
  // The client that a proxy at `from` names in X-Forwarded-For: the last address that is not one of
  // the trusted proxies.
  ClientAddress ClientOf(const ClientAddress& from, std::string_view forwarded_for) const;

 private:
  std::vector<AddressRange> ranges_;
};

}  // namespace quire
