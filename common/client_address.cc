#include "common/client_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>

#include "common/ascii.h"

namespace quire {
namespace {

constexpr int kV4Bits = 96;  // before an IPv4 address
constexpr int kShareBits = 64;

bool IsV4(const ClientAddress& address) {
  return std::all_of(address.bytes.begin(), address.bytes.begin() + 10,
                     [](uint8_t byte) { return byte == 0; }) &&
         address.bytes[10] == 0xFF && address.bytes[11] == 0xFF;
}

std::optional<ClientAddress> ParseBare(std::string_view text) {
  const std::string copy(text.substr(0, INET6_ADDRSTRLEN));
  uint8_t bytes[16];
  if (::inet_pton(AF_INET, copy.c_str(), bytes) == 1) return ClientAddress::OfV4(bytes);
  if (::inet_pton(AF_INET6, copy.c_str(), bytes) == 1) return ClientAddress::OfV6(bytes);
  return std::nullopt;
}

}  // namespace

ClientAddress ClientAddress::OfV4(const uint8_t* four) {
  ClientAddress address;
  address.bytes[10] = address.bytes[11] = 0xFF;
  std::copy(four, four + 4, address.bytes.begin() + 12);
  return address;
}

ClientAddress ClientAddress::OfV6(const uint8_t* sixteen) {
  ClientAddress address;
  std::copy(sixteen, sixteen + 16, address.bytes.begin());
  return address;
}

ClientAddress ClientAddress::OfPeer(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    return OfV4(reinterpret_cast<const uint8_t*>(&v4.sin_addr));
  }
  if (peer.ss_family != AF_INET6) return {};
  return OfV6(reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr.s6_addr);
}

std::optional<ClientAddress> ClientAddress::Parse(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    return ParseBare(text.substr(1, end - 1));
  }
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
    text = text.substr(0, colon);
  }
  return ParseBare(text);
}

bool ClientAddress::loopback() const {
  if (IsV4(*this)) return bytes[12] == 127;
  return bytes.back() == 1 &&
         std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t byte) { return byte == 0; });
}

ClientAddress ClientAddress::Share() const {
  if (IsV4(*this)) return *this;
  ClientAddress share = *this;
  std::fill(share.bytes.begin() + kShareBits / 8, share.bytes.end(), uint8_t{0});
  return share;
}

absl::StatusOr<AddressRange> AddressRange::Parse(std::string_view text) {
  const size_t slash = text.find('/');
  const std::optional<ClientAddress> first = ParseBare(text.substr(0, slash));
  const absl::Status wrong =
      InvalidArgument("\"" + std::string(text.substr(0, 64)) +
                      "\" is no address and no range; 10.0.0.0/8, 2001:db8::/32 and 192.0.2.7 are");
  if (!first) return wrong;
  AddressRange range{*first, 128};
  if (slash == std::string_view::npos) return range;
  const int before = IsV4(*first) ? kV4Bits : 0;
  const char* const end = text.data() + text.size();
  int bits = -1;
  const auto read = std::from_chars(text.data() + slash + 1, end, bits);
  if (read.ec != std::errc() || read.ptr != end || bits < 0 || before + bits > 128) return wrong;
  range.bits = before + bits;
  return range;
}

bool AddressRange::Contains(const ClientAddress& address) const {
  for (int bit = 0; bit < bits; ++bit) {
    const size_t at = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if ((address.bytes[at] & mask) != (first.bytes[at] & mask)) return false;
  }
  return true;
}

absl::StatusOr<TrustedProxies> TrustedProxies::Parse(const std::vector<std::string>& ranges) {
  TrustedProxies proxies;
  for (const std::string& text : ranges) {
    QUIRE_ASSIGN_OR_RETURN(const AddressRange range, AddressRange::Parse(text));
    proxies.ranges_.push_back(range);
  }
  return proxies;
}

bool TrustedProxies::Contains(const ClientAddress& address) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const AddressRange& range) { return range.Contains(address); });
}

ClientAddress TrustedProxies::ClientOf(const ClientAddress& from,
                                       std::string_view forwarded_for) const {
  ClientAddress client = from;
  while (Contains(client) && !forwarded_for.empty()) {
    const size_t comma = forwarded_for.rfind(',');
    const bool last = comma == std::string_view::npos;
    const auto named =
        ClientAddress::Parse(Trim(last ? forwarded_for : forwarded_for.substr(comma + 1)));
    if (!named) break;
    client = *named;
    forwarded_for = last ? std::string_view() : forwarded_for.substr(0, comma);
  }
  return client;
}

}  // namespace quire
