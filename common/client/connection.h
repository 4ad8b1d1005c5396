// A client's connection to a server: TCP, with TLS around it where the URL says https. For the
// command line, and for threads that may block.
//
// Blocking, on the calling thread; checks `cancelled` ten times a second, or as soon as
// Url::stop_fd is readable.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire::client {

inline constexpr int64_t kConnectTimeoutMs = 5000;

struct Url {
  std::string host;
  std::string port;
  bool tls = false;
  std::string authorities = {};  // PEM file; empty: those that the system trusts
  int64_t limit_ms = 0;          // of the whole exchange; 0: no limit
  int64_t idle_ms = 0;           // without a byte while one is waited for; 0: no limit
  // Readable once `cancelled` is true: then many connections may wait without waking up meanwhile.
  int stop_fd = -1;
  bool only_public = false;  // addresses that are not of the internet are refused
  // What an error advises where no server listens, and where its certificate is not trusted.
  std::string refused_advice = "is it running? `quire serve` starts one";
  std::string trust_advice =
      "give the authority that signed it with --cacert, or the name that it has in --url";
};
// "http://HOST[:PORT]", "https://HOST[:PORT]" or "HOST:PORT". INVALID_ARGUMENT for another scheme.
absl::StatusOr<Url> ParseUrl(std::string_view text);

class Connection {
 public:
  // UNAVAILABLE names the cause, for example that no server listens, or that a certificate is not
  // trusted, and what may help; PERMISSION_DENIED by only_public. CANCELLED when `cancelled`, which
  // outlives it, became true.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Url& url,
                                                          const std::atomic<bool>& cancelled);
  ~Connection();
  Connection(const Connection&) = delete;

  absl::Status Send(std::string_view bytes);
  // Waits for some bytes; 0 at the end.
  absl::StatusOr<size_t> Receive(char* buffer, size_t size);

 private:
  struct FreeContext {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  using Time = std::chrono::steady_clock::time_point;
  Connection(int fd, Time end, const Url& url, const std::atomic<bool>& cancelled)
      : fd_(fd),
        end_(end),
        idle_ms_(url.idle_ms > 0 ? url.idle_ms : -1),
        stop_fd_(url.stop_fd),
        cancelled_(cancelled) {}
  absl::Status Wait(int16_t events, int64_t limit_ms) const;
  absl::Status ShakeHands(const Url& url);
  // Waits for what TLS needs after `result`; false: the connection is over.
  absl::StatusOr<bool> AwaitTls(int result, int64_t limit_ms);

  const int fd_;
  const Time end_;         // of the whole exchange
  const int64_t idle_ms_;  // -1: no limit
  const int stop_fd_;
  const std::atomic<bool>& cancelled_;
  std::unique_ptr<SSL_CTX, FreeContext> context_;
  std::unique_ptr<SSL, FreeSsl> ssl_;  // nullptr: in the clear
};

}  // namespace quire::client
