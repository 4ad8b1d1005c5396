#include "common/client/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/client/public_address.h"

namespace quire::client {
namespace {

constexpr int kPollMs = 100;
constexpr int kLongPollMs = 10'000;  // where a descriptor says when to stop

std::string WhereOf(const Url& url) { return url.host + ":" + url.port; }

// A certificate lists an IP address as such, a name as a name.
bool ExpectName(SSL* ssl, const std::string& host) {
  unsigned char address[16];
  const bool is_address = inet_pton(AF_INET, host.c_str(), address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), address) == 1;
  if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  return SSL_set1_host(ssl, host.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

ClientAddress AddressOf(const addrinfo& found) {
  if (found.ai_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(*found.ai_addr);
    return ClientAddress::OfV4(reinterpret_cast<const uint8_t*>(&v4.sin_addr));
  }
  if (found.ai_family != AF_INET6) return {};
  return ClientAddress::OfV6(
      reinterpret_cast<const sockaddr_in6&>(*found.ai_addr).sin6_addr.s6_addr);
}

}  // namespace

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  std::string_view rest = text;
  Url url;
  url.tls = rest.starts_with("https://");
  if (url.tls) rest.remove_prefix(8);
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (rest.find("://") != std::string_view::npos) {
    return InvalidArgument("--url: '" + std::string(text) +
                           "' is not served; use http://HOST:PORT or https://HOST:PORT");
  }
  rest = rest.substr(0, rest.find('/'));
  const bool in_brackets = rest.starts_with('[');
  const size_t end = in_brackets ? rest.find(']') : rest.rfind(':');
  if (rest.empty() || end == 0 || (in_brackets && end == std::string_view::npos)) {
    return InvalidArgument("--url: '" + std::string(text) +
                           "' names no host; use http://HOST:PORT");
  }
  url.host = in_brackets ? rest.substr(1, end - 1) : rest.substr(0, end);
  if (in_brackets) rest.remove_prefix(end + 1);
  const size_t colon = rest.rfind(':');
  url.port = colon == std::string_view::npos ? (url.tls ? "443" : "80")
                                             : std::string(rest.substr(colon + 1));
  return url;
}

Connection::~Connection() {
  ssl_.reset();
  close(fd_);
}

absl::Status Connection::Wait(int16_t events, int64_t limit_ms) const {
  using std::chrono::milliseconds;
  const Time begin = std::chrono::steady_clock::now();
  const Time end = limit_ms < 0 ? end_ : std::min(end_, begin + milliseconds(limit_ms));
  for (Time now = begin; now < end; now = std::chrono::steady_clock::now()) {
    if (cancelled_) return absl::CancelledError("interrupted");
    const auto slice = milliseconds(stop_fd_ < 0 ? kPollMs : kLongPollMs);
    const auto left = end - now < slice ? std::chrono::ceil<milliseconds>(end - now) : slice;
    pollfd p[2] = {{fd_, events, 0}, {stop_fd_, POLLIN, 0}};
    const int got = poll(p, stop_fd_ < 0 ? 1 : 2, static_cast<int>(left.count()));
    if (got < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (got > 0 && p[0].revents != 0) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("no answer in time");
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Url& url,
                                                             const std::atomic<bool>& cancelled) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); code != 0) {
    return absl::UnavailableError(AbslView(WhereOf(url) + ": " + gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  const Time end = url.limit_ms > 0
                       ? std::chrono::steady_clock::now() + std::chrono::milliseconds(url.limit_ms)
                       : Time::max();
  int last_error = ECONNREFUSED;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    if (url.only_public && !IsPublic(AddressOf(*a))) {
      return absl::PermissionDeniedError(
          AbslView(WhereOf(url) + ": is an address of a private network, where this may not lead"));
    }
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    std::unique_ptr<Connection> connection(new Connection(fd, end, url, cancelled));
    last_error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (last_error == EINPROGRESS) {
      QUIRE_RETURN_IF_ERROR(Annotate(connection->Wait(POLLOUT, kConnectTimeoutMs), WhereOf(url)));
      socklen_t size = sizeof(last_error);
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &last_error, &size);
    }
    if (last_error != 0) continue;
    if (url.tls) QUIRE_RETURN_IF_ERROR(connection->ShakeHands(url));
    return connection;
  }
  return absl::UnavailableError(AbslView(WhereOf(url) + ": " + std::string(strerror(last_error)) +
                                         "; " + url.refused_advice));
}

absl::Status Connection::ShakeHands(const Url& url) {
  context_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  const bool trusts =
      url.authorities.empty()
          ? SSL_CTX_set_default_verify_paths(context_.get()) == 1
          : SSL_CTX_load_verify_locations(context_.get(), url.authorities.c_str(), nullptr) == 1;
  ERR_clear_error();
  if (!trusts) {
    return InvalidArgument("--cacert: " + url.authorities +
                           " cannot be read as certificates in PEM");
  }
  ssl_.reset(SSL_new(context_.get()));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_) != 1 || !ExpectName(ssl_.get(), url.host)) {
    return absl::InternalError("TLS cannot be set up");
  }
  while (true) {
    ERR_clear_error();
    const int result = SSL_connect(ssl_.get());
    if (result == 1) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(const bool more, AwaitTls(result, kConnectTimeoutMs));
    if (more) continue;
    const long verified = SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK) {
      return absl::UnavailableError(AbslView(WhereOf(url) + ": its certificate is not trusted (" +
                                             X509_verify_cert_error_string(verified) + "); " +
                                             url.trust_advice));
    }
    return absl::UnavailableError(
        AbslView(WhereOf(url) + ": there is no TLS there; try http://" + WhereOf(url)));
  }
}

absl::StatusOr<bool> Connection::AwaitTls(int result, int64_t limit_ms) {
  const int error = SSL_get_error(ssl_.get(), result);
  ERR_clear_error();
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
  QUIRE_RETURN_IF_ERROR(Wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, limit_ms));
  return true;
}

absl::Status Connection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    ERR_clear_error();
    const ssize_t count = ssl_ ? SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                               : send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
      continue;
    }
    bool more = !ssl_ && (errno == EAGAIN || errno == EINTR);
    if (ssl_) {
      QUIRE_ASSIGN_OR_RETURN(more, AwaitTls(static_cast<int>(count), idle_ms_));
    } else if (more) {
      QUIRE_RETURN_IF_ERROR(Wait(POLLOUT, idle_ms_));
    }
    if (!more) return absl::UnavailableError("the server closed the connection");
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Connection::Receive(char* buffer, size_t size) {
  while (true) {
    if (ssl_ == nullptr) QUIRE_RETURN_IF_ERROR(Wait(POLLIN, idle_ms_));
    ERR_clear_error();
    const ssize_t count =
        ssl_ ? SSL_read(ssl_.get(), buffer, static_cast<int>(size)) : recv(fd_, buffer, size, 0);
    if (count > 0) return static_cast<size_t>(count);
    if (ssl_ != nullptr) {
      QUIRE_ASSIGN_OR_RETURN(const bool more, AwaitTls(static_cast<int>(count), idle_ms_));
      if (!more) return 0;
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return 0;
    }
  }
}

}  // namespace quire::client
