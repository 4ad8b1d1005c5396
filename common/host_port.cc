#include "common/host_port.h"

#include <charconv>
#include <optional>

#include "common/client_address.h"

namespace quire {
namespace {

// No character of it may split a line of a log or an address.
bool IsPlain(std::string_view host) {
  for (const char c : host) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    if (!fits) return false;
  }
  return !host.empty();
}

absl::Status Wrong(std::string_view text) {
  return InvalidArgument("must be HOST:PORT, as in 127.0.0.1:9000, is '" +
                         std::string(text.substr(0, 200)) + "'");
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.size() > kMaxTargetBytes) return Wrong(text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool one_address = bracketed || host.find(':') == std::string_view::npos;
  HostPort parts{.host = std::string(host)};
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text_end, parts.port);
  if (!one_address || !IsPlain(host) || error != std::errc() || end != text_end) return Wrong(text);
  return parts;
}

absl::Status CheckTarget(std::string_view target) {
  QUIRE_ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(target));
  return parts.port == 0 ? Wrong(target) : absl::OkStatus();
}

std::string JoinHostPort(std::string_view host, uint32_t port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  const std::string shown = v6 ? "[" + std::string(host) + "]" : std::string(host);
  return shown + ":" + std::to_string(port);
}

bool IsLoopback(std::string_view host) {
  const std::optional<ClientAddress> address = ClientAddress::Parse(host);
  return host == "localhost" || (address && address->loopback());
}

}  // namespace quire
