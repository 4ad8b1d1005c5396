// What keeps pages of other sites away from a server that asks for no key on its own machine: a
// browser says whose page asks, and a name of somebody else's that was bent to this address is none
// of ours.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// What a browser may have added; empty: the header is absent.
struct BrowserWords {
  std::string_view host;
  std::string_view origin;
  std::string_view fetch_site;  // sec-fetch-site
  bool from_browser() const { return !origin.empty() || !fetch_site.empty(); }
};

// IP addresses, localhost and what ends in .localhost, and the names in the list ("*": all).
bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed);

// Why a request is a foreign page's; nullopt: it is none. `allowed_origin`: CORS lets it read.
std::optional<std::string> ForeignPage(const BrowserWords& words, bool allowed_origin);

// Whether a body of this Content-Type is read, where `served` are (with spaces between). A client
// that is no browser may leave it out, or say what `curl -d` says, and is read as sending the
// first.
bool IsServedType(std::string_view content_type, std::string_view served, bool from_browser);

}  // namespace quire
