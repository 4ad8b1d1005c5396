#include "cli/http_client_asio.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <memory>

namespace quire::cli {
namespace {

namespace http = boost::beast::http;

constexpr int kPollMs = 100;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  int fd() const { return fd_; }

  // Waits until `events` hold. CANCELLED or DEADLINE_EXCEEDED otherwise; limit_ms < 0 is none.
  absl::Status Wait(int16_t events, const std::atomic<bool>& cancelled, int64_t limit_ms) const {
    for (int64_t waited = 0; limit_ms < 0 || waited < limit_ms; waited += kPollMs) {
      if (cancelled) return absl::CancelledError("interrupted");
      pollfd p = {fd_, events, 0};
      const int got = poll(&p, 1, kPollMs);
      if (got > 0) return absl::OkStatus();
      if (got < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    }
    return absl::DeadlineExceededError("no answer in time");
  }

 private:
  int fd_;
};

absl::StatusOr<std::unique_ptr<Socket>> Connect(const Url& url,
                                                const std::atomic<bool>& cancelled) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string where = url.host + ":" + url.port;
  if (const int code = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); code != 0) {
    return absl::UnavailableError(AbslView(where + ": " + gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int last_error = ECONNREFUSED;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    auto socket = std::make_unique<Socket>(fd);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return socket;
    last_error = errno;
    if (last_error != EINPROGRESS) continue;
    QUIRE_RETURN_IF_ERROR(socket->Wait(POLLOUT, cancelled, kConnectTimeoutMs));
    socklen_t size = sizeof(last_error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &last_error, &size);
    if (last_error == 0) return socket;
  }
  return absl::UnavailableError(AbslView(where + ": " + std::string(strerror(last_error)) +
                                         "; is it running? `quire serve` starts one"));
}

absl::Status SendAll(const Socket& socket, std::string_view bytes,
                     const std::atomic<bool>& cancelled) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      QUIRE_RETURN_IF_ERROR(socket.Wait(POLLOUT, cancelled, -1));
    } else {
      return absl::UnavailableError("the server closed the connection");
    }
  }
  return absl::OkStatus();
}

std::string RequestText(const Url& url, const HttpRequest& request) {
  std::string text = request.method + " " + request.path + " HTTP/1.1\r\nHost: " + url.host + ":" +
                     url.port + "\r\nConnection: close\r\nUser-Agent: quire\r\n";
  if (!request.api_key.empty()) text += "Authorization: Bearer " + request.api_key + "\r\n";
  if (!request.body.empty()) {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) +
        "\r\n";
  }
  return text + "\r\n" + request.body;
}

// Cuts a byte stream into events; only their data lines matter here.
class EventReader {
 public:
  explicit EventReader(const std::function<bool(std::string_view)>& on_event)
      : on_event_(on_event) {}
  bool Add(std::string_view bytes) {
    pending_.append(bytes);
    size_t start = 0;
    bool more = true;
    for (size_t end; more && (end = pending_.find('\n', start)) != std::string::npos;
         start = end + 1) {
      std::string_view line = std::string_view(pending_).substr(start, end - start);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        more = on_event_(line);
      }
    }
    pending_.erase(0, start);
    return more;
  }

 private:
  const std::function<bool(std::string_view)>& on_event_;
  std::string pending_;
};

}  // namespace

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (rest.find("://") != std::string_view::npos) {
    return InvalidArgument("--url: '" + std::string(text) +
                           "' is not served; use http://HOST:PORT");
  }
  rest = rest.substr(0, rest.find('/'));
  const size_t colon = rest.rfind(':');
  if (rest.empty() || colon == 0) {
    return InvalidArgument("--url: '" + std::string(text) +
                           "' names no host; use http://HOST:PORT");
  }
  if (colon == std::string_view::npos) return Url{std::string(rest), "80"};
  return Url{std::string(rest.substr(0, colon)), std::string(rest.substr(colon + 1))};
}

absl::StatusOr<HttpAnswer> Exchange(const Url& url, const HttpRequest& request,
                                    const std::atomic<bool>& cancelled,
                                    const std::function<bool(std::string_view)>& on_event) {
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Socket> socket, Connect(url, cancelled));
  QUIRE_RETURN_IF_ERROR(SendAll(*socket, RequestText(url, request), cancelled));
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMaxAnswerBytes);
  EventReader events(on_event);
  bool wanted = true;
  HttpAnswer answer;
  auto on_chunk = [&](std::uint64_t, boost::beast::string_view body, boost::beast::error_code&) {
    const std::string_view bytes(body.data(), body.size());
    const auto type = parser.get()[http::field::content_type];
    if (type.starts_with("text/event-stream")) {
      wanted = wanted && events.Add(bytes);
    } else {
      answer.body.append(bytes);
    }
    return body.size();
  };
  parser.on_chunk_body(on_chunk);
  std::string pending;
  char buffer[16384];
  while (!parser.is_done() && wanted) {
    QUIRE_RETURN_IF_ERROR(socket->Wait(POLLIN, cancelled, -1));
    const ssize_t count = recv(socket->fd(), buffer, sizeof(buffer), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    boost::beast::error_code error;
    if (count <= 0) {
      parser.put_eof(error);
      if (error || !parser.is_done()) {
        return absl::UnavailableError("the server closed the connection in mid-answer");
      }
      break;
    }
    pending.append(buffer, count);
    const size_t used = parser.put(boost::asio::buffer(pending), error);
    pending.erase(0, used);
    if (error && error != http::error::need_more) {
      return absl::UnavailableError(AbslView("the answer is no HTTP: " + error.message()));
    }
  }
  answer.status = static_cast<int>(parser.get().result_int());
  if (answer.body.empty()) answer.body = parser.get().body();
  return answer;
}

}  // namespace quire::cli
