#include "router/core/target.h"

#include <charconv>

namespace quire {
namespace {

bool IsPort(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

// No character of it may be able to break a line of a log or an address in two.
bool IsPlain(std::string_view host) {
  for (const char c : host) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    if (!fits) return false;
  }
  return !host.empty();
}

}  // namespace

absl::Status CheckTarget(std::string_view target) {
  const size_t colon = target.rfind(':');
  if (colon != std::string_view::npos && target.size() <= kMaxTargetBytes) {
    std::string_view host = target.substr(0, colon);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    const bool one_address = bracketed || host.find(':') == std::string_view::npos;
    if (one_address && IsPlain(host) && IsPort(target.substr(colon + 1))) return absl::OkStatus();
  }
  return InvalidArgument("must be HOST:PORT, as in 127.0.0.1:9000, is '" +
                         std::string(target.substr(0, 200)) + "'");
}

TargetParts SplitTarget(std::string_view target) {
  const size_t colon = target.rfind(':');
  std::string_view host = target.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const std::string_view port = target.substr(colon + 1);
  TargetParts parts{.host = std::string(host)};
  std::from_chars(port.data(), port.data() + port.size(), parts.port);
  return parts;
}

std::string MakeTarget(std::string_view host, uint32_t port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  const std::string shown = v6 ? "[" + std::string(host) + "]" : std::string(host);
  return shown + ":" + std::to_string(port);
}

}  // namespace quire
