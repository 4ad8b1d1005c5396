#include "cli/pull/http_session.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/ascii.h"

namespace quire::pull {
namespace http = boost::beast::http;

namespace {

constexpr size_t kReadBytes = 256u << 10;
constexpr int64_t kIdleMs = 30'000;

std::string RequestText(const Request& request) {
  const Address& to = request.address;
  std::string text = request.method + " " + to.target + " HTTP/1.1\r\nHost: " + to.host;
  if (to.port != (to.tls ? "443" : "80")) text += ":" + to.port;
  text += "\r\nUser-Agent: quire\r\nAccept-Encoding: identity\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (!request.body.empty()) {
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return text + "\r\n" + request.body;
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string LowerOf(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), ToLower);
  return lower;
}

std::string WhereOf(const Address& address) { return address.host + ":" + address.port; }

}  // namespace

// The head of an answer as Beast reads it, and the bytes that came behind it.
class HeadParser {
 public:
  HeadParser() {
    parser.eager(false);
    parser.header_limit(kMaxHeadBytes);
    parser.body_limit(boost::none);
  }
  http::response_parser<http::string_body> parser;
  std::string pending;
};

std::string PercentEncoded(std::string_view text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~").find(c) != std::string_view::npos ||
                       (keep_slashes && c == '/');
    if (plain) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string Address::Origin() const {
  return std::string(tls ? "https://" : "http://") + host + ":" + port;
}

std::string_view Reply::Header(std::string_view name) const {
  const auto found = headers.find(std::string(name));
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

absl::StatusOr<Address> ParseAddress(std::string_view url) {
  const bool tls = url.starts_with("https://");
  if (!tls && !url.starts_with("http://")) {
    return InvalidArgument("'" + std::string(url.substr(0, 200)) +
                           "' is no address; it begins with https:// or http://");
  }
  const bool printable =
      std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c < 127; });
  std::string_view rest = url.substr(tls ? 8 : 7);
  const size_t path = rest.find_first_of("/?#");
  const std::string_view authority = rest.substr(0, path);
  if (!printable || url.size() > kMaxUrlBytes || authority.empty() ||
      authority.find('@') != std::string_view::npos) {
    return InvalidArgument("'" + std::string(url.substr(0, 200)) +
                           "' is no address; it has a host, no user, no blanks, and at most " +
                           std::to_string(kMaxUrlBytes) + " bytes");
  }
  QUIRE_ASSIGN_OR_RETURN(const client::Url parts,
                         client::ParseUrl(url.substr(0, (tls ? 8 : 7) + authority.size())));
  Address address{tls, parts.host, parts.port, "/"};
  if (path == std::string_view::npos) return address;
  rest = rest.substr(path);
  rest = rest.substr(0, rest.find('#'));
  if (!rest.empty()) address.target = (rest.front() == '/' ? "" : "/") + std::string(rest);
  return address;
}

absl::StatusOr<Address> ParseLocation(const Address& from, std::string_view location) {
  std::string url(location);
  if (location.starts_with("//")) {
    url = (from.tls ? "https:" : "http:") + url;
  } else if (location.starts_with("/")) {
    url = from.Origin() + url;
  }
  QUIRE_ASSIGN_OR_RETURN(const Address to, ParseAddress(url));
  if (from.tls && !to.tls) {
    return InvalidArgument(WhereOf(from) + ": sends on from https:// to http://" + WhereOf(to) +
                           ", where anyone could change the files");
  }
  return to;
}

absl::Status HttpSession::Connect(const Address& address) {
  if (connection_ != nullptr && origin_ == address.Origin()) return absl::OkStatus();
  connection_.reset();
  client::Url url;
  url.host = address.host;
  url.port = address.port;
  url.tls = address.tls;
  url.authorities = authorities_;
  url.idle_ms = kIdleMs;
  url.only_public = reach_.only_public && address.Origin() != reach_.except;
  url.refused_advice = reach_.refused_advice;
  url.trust_advice = "SSL_CERT_FILE names the file of an authority to trust";
  QUIRE_ASSIGN_OR_RETURN(connection_, client::Connection::Open(url, cancelled_));
  origin_ = address.Origin();
  return absl::OkStatus();
}

absl::StatusOr<Reply> HttpSession::Do(const Request& request, const TakeHead& take_head) {
  for (const auto& [name, value] : request.headers) {
    if ((name + value).find_first_of("\r\n") != std::string::npos) {
      return InvalidArgument(name + ": has a line end in its value");
    }
  }
  while (true) {
    const bool is_kept = connection_ != nullptr && origin_ == request.address.Origin();
    QUIRE_RETURN_IF_ERROR(Connect(request.address));
    bool any_byte = false;
    absl::StatusOr<Reply> reply = Exchange(request, take_head, any_byte);
    if (reply.ok()) return reply;
    connection_.reset();
    // A server may close a connection that was kept at any time.
    if (is_kept && !any_byte && absl::IsUnavailable(reply.status())) continue;
    return Annotate(reply.status(), WhereOf(request.address));
  }
}

absl::StatusOr<Reply> HttpSession::Exchange(const Request& request, const TakeHead& take_head,
                                            bool& any_byte) {
  QUIRE_RETURN_IF_ERROR(connection_->Send(RequestText(request)));
  HeadParser head;
  if (request.method == "HEAD") head.parser.skip(true);
  std::string buffer(16u << 10, '\0');
  while (!head.parser.is_header_done()) {
    QUIRE_ASSIGN_OR_RETURN(const size_t count, connection_->Receive(buffer.data(), buffer.size()));
    if (count == 0) return absl::UnavailableError("the server closed the connection");
    any_byte = true;
    head.pending.append(buffer, 0, count);
    boost::beast::error_code error;
    const size_t used = head.parser.put(boost::asio::buffer(head.pending), error);
    head.pending.erase(0, used);
    if (error && error != http::error::need_more) {
      return absl::UnavailableError(AbslView("the answer is no HTTP: " + error.message()));
    }
  }
  Reply reply;
  reply.status = static_cast<int>(head.parser.get().result_int());
  for (const auto& field : head.parser.get()) {
    const auto name = field.name_string(), value = field.value();
    reply.headers[LowerOf({name.data(), name.size()})] = std::string(value.data(), value.size());
  }
  if (const auto length = head.parser.content_length()) {
    reply.length = static_cast<int64_t>(*length);
  }
  if (const std::string_view coding = reply.Header("content-encoding");
      !coding.empty() && coding != "identity") {
    return absl::UnavailableError("the server packs what it was asked for as it is");
  }
  const TakeBytes take = take_head ? take_head(reply) : TakeBytes();
  if (!head.parser.is_done()) QUIRE_RETURN_IF_ERROR(ReadBody(head, reply, take));
  if (!head.parser.get().keep_alive()) connection_.reset();
  return reply;
}

absl::Status HttpSession::ReadBody(HeadParser& head, Reply& reply, const TakeBytes& take) {
  const auto give = [&](std::string_view bytes) -> absl::Status {
    if (take) return take(bytes);
    if (reply.text.size() + bytes.size() > kMaxTextBytes) {
      return absl::ResourceExhaustedError("the answer is longer than 32 MiB");
    }
    reply.text += bytes;
    return absl::OkStatus();
  };
  std::string buffer(kReadBytes, '\0');
  if (!head.parser.chunked()) {
    int64_t left = reply.length;
    std::string_view bytes = head.pending;
    while (left != 0) {
      if (left > 0) bytes = bytes.substr(0, static_cast<size_t>(left));
      if (!bytes.empty()) QUIRE_RETURN_IF_ERROR(give(bytes));
      if (left > 0) left -= static_cast<int64_t>(bytes.size());
      if (left == 0) return absl::OkStatus();
      QUIRE_ASSIGN_OR_RETURN(const size_t count,
                             connection_->Receive(buffer.data(), buffer.size()));
      if (count == 0 && left > 0) {
        return absl::UnavailableError("the server closed the connection in mid-answer");
      }
      if (count == 0) break;
      bytes = std::string_view(buffer.data(), count);
    }
    if (reply.length < 0) connection_.reset();
    return absl::OkStatus();
  }
  absl::Status refused;
  auto on_chunk = [&](std::uint64_t, boost::beast::string_view body, boost::beast::error_code& e) {
    if (refused.ok()) refused = give({body.data(), body.size()});
    if (!refused.ok()) e = http::error::body_limit;
    return body.size();
  };
  head.parser.on_chunk_body(on_chunk);
  head.parser.eager(true);
  while (true) {
    boost::beast::error_code error;
    if (!head.pending.empty()) {
      head.pending.erase(0, head.parser.put(boost::asio::buffer(head.pending), error));
    }
    QUIRE_RETURN_IF_ERROR(refused);
    if (error && error != http::error::need_more) {
      return absl::UnavailableError(AbslView("the answer is no HTTP: " + error.message()));
    }
    if (head.parser.is_done()) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(const size_t count, connection_->Receive(buffer.data(), buffer.size()));
    if (count == 0) {
      return absl::UnavailableError("the server closed the connection in mid-answer");
    }
    head.pending.append(buffer, 0, count);
    if (head.pending.size() > 2 * kReadBytes + kMaxHeadBytes) {
      return absl::UnavailableError("the answer is no HTTP: a chunk's head has no end");
    }
  }
}

absl::StatusOr<Reply> HttpSession::Follow(Request request, const TakeHead& take_head,
                                          Address* final_address) {
  const TakeHead not_of_redirects = [&](const Reply& head) -> TakeBytes {
    return take_head && !IsRedirect(head.status) ? take_head(head) : TakeBytes();
  };
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    QUIRE_ASSIGN_OR_RETURN(Reply reply, Do(request, not_of_redirects));
    if (final_address != nullptr) *final_address = request.address;
    if (!IsRedirect(reply.status)) return reply;
    QUIRE_ASSIGN_OR_RETURN(const Address next,
                           ParseLocation(request.address, reply.Header("location")));
    if (next.Origin() != request.address.Origin()) {
      std::erase_if(request.headers, [](const auto& header) {
        const std::string name = LowerOf(header.first);
        return name == "authorization" || name == "cookie";
      });
    }
    request.address = next;
    if (reply.status == 303) request.method = "GET";
  }
  return absl::UnavailableError(AbslView(WhereOf(request.address) + ": more than " +
                                         std::to_string(kMaxRedirects) + " redirects"));
}

}  // namespace quire::pull
