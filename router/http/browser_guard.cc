#include "router/http/browser_guard.h"

#include <algorithm>

#include "common/client_address.h"

namespace quire {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool Same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && Same(text.substr(text.size() - end.size()), end);
}

std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed) {
  if (ClientAddress::Parse(host)) return true;
  const std::string_view name = WithoutPort(host);
  if (Same(name, "localhost") || EndsWith(name, ".localhost")) return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one == "*" || Same(one, name) || Same(one, host);
  });
}

std::optional<std::string> ForeignPage(const BrowserWords& words, bool allowed_origin) {
  if (allowed_origin) return std::nullopt;
  if (!words.origin.empty()) {
    const size_t scheme = words.origin.find("://");
    const bool own =
        scheme != std::string_view::npos && Same(words.origin.substr(scheme + 3), words.host);
    if (own) return std::nullopt;
    return "Origin: pages of \"" + std::string(words.origin.substr(0, 256)) +
           "\" may not ask this server; --cors-allow-origin lets them";
  }
  if (!Same(words.fetch_site, "cross-site")) return std::nullopt;
  return "Sec-Fetch-Site: a page of another site asks; --cors-allow-origin lets pages do so";
}

bool IsServedType(std::string_view content_type, std::string_view served, bool from_browser) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  if (!from_browser && (type.empty() || Same(type, "application/x-www-form-urlencoded"))) {
    return true;
  }
  while (!served.empty()) {
    const size_t end = served.find(' ');
    if (Same(type, served.substr(0, end))) return true;
    served = end == std::string_view::npos ? std::string_view() : served.substr(end + 1);
  }
  return false;
}

}  // namespace quire
