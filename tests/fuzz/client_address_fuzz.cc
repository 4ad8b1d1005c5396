// Fuzzes what a proxy says about whom it speaks for: the header of the PROXY protocol, and
// X-Forwarded-For. A header is read alike however its bytes are cut, and only a trusted proxy is
// believed. The first byte picks the reader.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/client_address.h"
#include "router/front/proxy_header.h"

namespace {

using quire::ClientAddress;
using quire::ProxyHeader;
using Kind = ProxyHeader::Kind;

void Require(bool condition) {
  if (!condition) std::abort();
}

bool Same(const ProxyHeader& a, const ProxyHeader& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.client == b.client;
}

void CheckHeader(std::string_view bytes) {
  const ProxyHeader all = quire::ReadProxyHeader(bytes);
  Require(all.bytes <= bytes.size() && all.bytes <= quire::kMaxProxyHeaderBytes);
  Require((all.bytes != 0) == (all.kind == Kind::kWhole));
  Require(all.kind == Kind::kWhole || !all.client);
  // A connection that waits for more always hears what it is in the end.
  Require(all.kind != Kind::kMore || bytes.size() < quire::kMaxProxyHeaderBytes);
  const size_t end = std::min(bytes.size(), quire::kMaxProxyHeaderBytes);
  for (size_t size = 0; size < end; ++size) {
    const ProxyHeader part = quire::ReadProxyHeader(bytes.substr(0, size));
    if (part.kind != Kind::kMore) return Require(Same(part, all));
    Require(all.kind != Kind::kWhole || size < all.bytes);
  }
}

void CheckForwarded(std::string_view text) {
  static const auto kTrusted =
      quire::TrustedProxies::Parse({"10.0.0.0/8", "2001:db8::/32", "192.0.2.7"}).value();
  const ClientAddress proxy = ClientAddress::Parse("10.1.2.3").value();
  const ClientAddress stranger = ClientAddress::Parse("198.51.100.9").value();
  Require(kTrusted.ClientOf(stranger, text) == stranger);
  const ClientAddress client = kTrusted.ClientOf(proxy, text);
  // Whatever a client writes before what the proxy adds changes nothing.
  Require(kTrusted.ClientOf(proxy, std::string(text) + ", 198.51.100.9") == stranger);
  if (!kTrusted.Contains(client)) {
    Require(kTrusted.ClientOf(proxy, "203.0.113.5, " + std::string(text)) == client);
  }
  if (const auto address = ClientAddress::Parse(text)) {
    Require(address->Share().Share() == address->Share());
  }
  if (const auto range = quire::AddressRange::Parse(text); range.ok()) {
    Require(range->bits >= 0 && range->bits <= 128 && range->Contains(range->first));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    CheckHeader(rest);
  } else {
    CheckForwarded(rest);
  }
  return 0;
}
