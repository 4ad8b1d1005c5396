// The ports of the router: accepts connections, distinguishes HTTP/1.1 from HTTP/2 by the first
// bytes, and passes them on.
//
// Owner: main; event loop only.
//
// Invariants:
// 1. Seats decides which connection has a place (seats.h); one beyond an address's share gets a 503
//    and is closed, and one beyond max_connections is served probes only.
// 2. A connection that sends nothing for first_bytes_timeout is closed.
// 3. With TLS no byte is read before a handshake has ended; at most max_tls_handshakes are under
//    way.
// 4. A trusted proxy may begin with a header of the PROXY protocol, and the connection then counts
//    for the client that the header names; an invalid header closes the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/client_seat.h"
#include "common/status.h"
#include "common/tls/tls_handshakes.h"
#include "router/front/tls_identity.h"
#include "router/http/http_server.h"

namespace quire {

struct FrontOptions {
  struct Port {
    uint16_t number = 0;  // 0: the system picks one
    std::string flag;     // the name of the port in errors
    bool grpc = false;    // the protocol of clients that offer both
  };
  std::string host = "127.0.0.1";
  std::vector<Port> ports;  // each speaks HTTP/1.1 and HTTP/2
  size_t max_connections = 4096;
  size_t max_connections_per_address = 0;   // 0: as Seats has it
  const TrustedProxies* proxies = nullptr;  // outlives the front; nullptr: none is trusted
  Micros first_bytes_timeout = 10 * kMicrosPerSecond;
  const TlsIdentity* tls = nullptr;  // outlives the front; nullptr: in the clear
  size_t max_tls_handshakes = 256;   // under way at once
  // Where handshakes are computed; outlives the front. nullptr: on the event loop, where a flood of
  // them delays streams.
  Background* handshakes = nullptr;
  Micros tls_handshake_timeout = 10 * kMicrosPerSecond;
};

// The listening sockets of a front. They are bound before anything that a client could use exists,
// so that a port that is taken is reported before there is anything to shut down.
class FrontPorts {
 public:
  // INVALID_ARGUMENT for a host that is no address, UNAVAILABLE for a port that is taken.
  static absl::StatusOr<FrontPorts> Bind(boost::asio::io_context& context,
                                         const FrontOptions& options);
  FrontPorts(FrontPorts&&) noexcept;
  ~FrontPorts();

 private:
  friend class Front;
  struct State;
  explicit FrontPorts(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Front {
 public:
  // Takes over a connection on which a client's HTTP/2 arrives, whose `first_bytes` were read;
  // `on_closed` runs once, when the connection has ended, and never from inside.
  using AdoptHttp2 =
      std::function<void(EdgeStream stream, std::string first_bytes,
                         std::function<void()> on_closed, std::shared_ptr<ClientSeat> seat)>;

  Front(boost::asio::io_context& context, HttpServices& services, FrontOptions options,
        AdoptHttp2 adopt_http2);
  ~Front();  // closes all connections except those that were passed on

  // Accepts on the ports, which it takes over.
  void Listen(FrontPorts ports);
  // Binds the ports first; fails as FrontPorts::Bind does.
  absl::Status Listen();
  // After Listen, in the order of FrontOptions::ports.
  const std::vector<uint16_t>& ports() const;

  // No new connections; HTTP/1.1 connections end after the current answer.
  void StartDraining();
  size_t connections() const;
  // Connections that speak HTTP/1.1.
  size_t http_connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
