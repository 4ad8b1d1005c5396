// An HTTP/1.1 client for downloads: one connection that is kept between requests, heads with
// bounded sizes, bodies handed on as they come.
//
// Owner: one thread, which it blocks; checks `cancelled` at least ten times a second. What a server
// says is hostile input.
//  1. A head is at most kMaxHeadBytes long, and a body that is asked for as text kMaxTextBytes.
//  2. A body that ends early is an error, never a short success.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/client/connection.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxHeadBytes = 64u << 10;
inline constexpr size_t kMaxTextBytes = 32u << 20;
inline constexpr size_t kMaxUrlBytes = 16u << 10;
inline constexpr int kMaxRedirects = 8;

// As a part of an address: everything but letters, digits and "-_.~" as %XX.
std::string PercentEncoded(std::string_view text, bool keep_slashes);

// "https://HOST[:PORT]/TARGET", split.
struct Address {
  bool tls = false;
  std::string host;
  std::string port;
  std::string target = "/";  // path and query

  std::string Origin() const;  // "https://HOST:PORT"
};
// INVALID_ARGUMENT for another scheme, control characters, names of users, and over kMaxUrlBytes.
absl::StatusOr<Address> ParseAddress(std::string_view url);
// A Location, which may be relative, as seen from `from`. INVALID_ARGUMENT where it leaves TLS.
absl::StatusOr<Address> ParseLocation(const Address& from, std::string_view location);

struct Request {
  std::string method = "GET";
  Address address;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  int64_t length = -1;                         // of the body; -1: unknown
  std::string text;                            // of the body, where nothing else took it

  // Empty where it is absent.
  std::string_view Header(std::string_view name) const;
};

// Takes a part of the body; an error ends the exchange with that error.
using TakeBytes = std::function<absl::Status(std::string_view bytes)>;
// Looks at a head and returns what takes its body; nullptr: it is kept as Reply::text.
using TakeHead = std::function<TakeBytes(const Reply& head)>;

// Where a session may go.
struct Reach {
  bool only_public = false;  // to addresses of the internet
  std::string except = {};   // an Address::Origin that may be private all the same
  // What an error advises where no server listens.
  std::string refused_advice = "is there a way to it from here? HF_ENDPOINT names another hub";
};

class HttpSession {
 public:
  HttpSession(std::string authorities, Reach reach, const std::atomic<bool>& cancelled)
      : authorities_(std::move(authorities)), reach_(std::move(reach)), cancelled_(cancelled) {}

  // One exchange. UNAVAILABLE where the server is not there, goes away, or says no HTTP;
  // PERMISSION_DENIED where it is out of reach.
  absl::StatusOr<Reply> Do(const Request& request, const TakeHead& take_head = {});
  // The same, going where a redirect leads. A host that the request did not name gets neither its
  // Authorization nor its cookies. `final_address` becomes the one that answered.
  absl::StatusOr<Reply> Follow(Request request, const TakeHead& take_head = {},
                               Address* final_address = nullptr);

 private:
  absl::Status Connect(const Address& address);
  absl::StatusOr<Reply> Exchange(const Request& request, const TakeHead& take_head, bool& any_byte);
  absl::Status ReadBody(class HeadParser& parser, Reply& reply, const TakeBytes& take);

  const std::string authorities_;
  const Reach reach_;
  const std::atomic<bool>& cancelled_;
  std::unique_ptr<client::Connection> connection_;
  std::string origin_;  // of the connection
};

}  // namespace quire::pull
