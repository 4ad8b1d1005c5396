// IP addresses of clients and ranges of them: who is at the other end, and whose word is taken for
// it.
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

// IPv4 stands inside IPv6 (::ffff:0:0/96). All zeros: not known.
struct ClientAddress {
  std::array<uint8_t, 16> bytes{};

  // "192.0.2.1", "2001:db8::1", "[2001:db8::1]:443", "192.0.2.1:80".
  static std::optional<ClientAddress> Parse(std::string_view text);
  static ClientAddress OfV4(const uint8_t* four);
  static ClientAddress OfV6(const uint8_t* sixteen);
  // Of the peer of a connected socket.
  static ClientAddress OfPeer(int fd);

  bool loopback() const;
  // One client of IPv6 has a /64 to choose its addresses from: what shares are counted by.
  ClientAddress Share() const;
  auto operator<=>(const ClientAddress&) const = default;
};

struct AddressRange {
  ClientAddress first;
  int bits = 128;  // that are the same in all of it

  // "10.0.0.0/8", "2001:db8::/32", or one address. INVALID_ARGUMENT says what works.
  static absl::StatusOr<AddressRange> Parse(std::string_view text);
  bool Contains(const ClientAddress& address) const;
};

class TrustedProxies {
 public:
  TrustedProxies() = default;
  static absl::StatusOr<TrustedProxies> Parse(const std::vector<std::string>& ranges);

  bool Contains(const ClientAddress& address) const;
  // Whom a proxy at `from` speaks for, by X-Forwarded-For: the last one that is no proxy of ours.
  ClientAddress ClientOf(const ClientAddress& from, std::string_view forwarded_for) const;

 private:
  std::vector<AddressRange> ranges_;
};

}  // namespace quire
