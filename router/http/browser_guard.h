// Keeps pages of other sites away from a server that requires no key on its own machine: a browser
// states the origin of the page, and a host name that was rebound to this address is not one of
// ours.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Headers that a browser may have added; empty: the header is absent.
struct BrowserWords {
  std::string_view host;
  std::string_view origin;
  std::string_view fetch_site;  // sec-fetch-site
  bool from_browser() const { return !origin.empty() || !fetch_site.empty(); }
};

// IP addresses, localhost and what ends in .localhost, and the names in the list ("*": all).
bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed);

// Why a request comes from a foreign page; nullopt: it does not. `allowed_origin`: CORS lets the
// page read the answer.
std::optional<std::string> ForeignPage(const BrowserWords& words, bool allowed_origin);

// Whether a body of this Content-Type is read, where `served` lists the accepted ones (with spaces
// between). A client that is no browser may leave the header out, or send what `curl -d` sends, and
// its body is read as the first one of the list.
bool IsServedType(std::string_view content_type, std::string_view served, bool from_browser);

}  // namespace quire
