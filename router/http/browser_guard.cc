#include "router/http/browser_guard.h"

#include <algorithm>

#include "common/ascii.h"
#include "common/client_address.h"

namespace quire {
namespace {

std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed) {
  if (ClientAddress::Parse(host)) return true;
  const std::string_view name = WithoutPort(host);
  if (EqualsIgnoringCase(name, "localhost") || EndsWithIgnoringCase(name, ".localhost"))
    return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one == "*" || EqualsIgnoringCase(one, name) || EqualsIgnoringCase(one, host);
  });
}

std::optional<std::string> ForeignPage(const BrowserWords& words, bool allowed_origin) {
  if (allowed_origin) return std::nullopt;
  if (!words.origin.empty()) {
    const size_t scheme = words.origin.find("://");
    const bool own = scheme != std::string_view::npos &&
                     EqualsIgnoringCase(words.origin.substr(scheme + 3), words.host);
    if (own) return std::nullopt;
    return "Origin: pages of \"" + std::string(words.origin.substr(0, 256)) +
           "\" may not ask this server; --cors-allow-origin lets them";
  }
  if (!EqualsIgnoringCase(words.fetch_site, "cross-site")) return std::nullopt;
  return "Sec-Fetch-Site: a page of another site asks; --cors-allow-origin lets pages do so";
}

bool IsServedType(std::string_view content_type, std::string_view served, bool from_browser) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  if (!from_browser &&
      (type.empty() || EqualsIgnoringCase(type, "application/x-www-form-urlencoded"))) {
    return true;
  }
  while (!served.empty()) {
    const size_t end = served.find(' ');
    if (EqualsIgnoringCase(type, served.substr(0, end))) return true;
    served = end == std::string_view::npos ? std::string_view() : served.substr(end + 1);
  }
  return false;
}

}  // namespace quire
