#include "router/front/front.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 1024;
// What a client has no room for waits here, where its slowness is felt, and not in the kernel's
// buffers, which grow to megabytes for each connection.
constexpr int kMaxUnsentBytes = 64 << 10;
constexpr Micros kAcceptPause = 100 * kMicrosPerMilli;  // when the process is out of descriptors
// Enough of the preface to be sure; no HTTP/1.1 method is called PRI.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n";
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    "Connection: close\r\nContent-Length: 118\r\n\r\n"
    "{\"error\":{\"message\":\"too many connections are "
    "open\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":\"too_many_connections\"}}";

absl::StatusOr<asio::ip::address> AddressOf(const std::string& host) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    return InvalidArgument("--host: \"" + host +
                           "\" is not an IP address; 127.0.0.1 and 0.0.0.0 are");
  }
  return address;
}

TlsCounters CountersOf(EdgeMetrics& counted) {
  return {.handshakes = counted.tls_handshakes,
          .handshake_failures = counted.tls_handshake_failures,
          .handshakes_refused = counted.tls_handshakes_refused,
          .write_timeouts = counted.http_write_timeouts,
          .connections_refused = counted.connections_refused,
          .idle_records = counted.tls_idle_records};
}

}  // namespace

struct FrontPorts::State {
  absl::Status ListenOn(asio::io_context& context, const asio::ip::address& address,
                        const FrontOptions::Port& port);

  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::vector<uint16_t> ports;
};

absl::Status FrontPorts::State::ListenOn(asio::io_context& context,
                                         const asio::ip::address& address,
                                         const FrontOptions::Port& port) {
  const tcp::endpoint endpoint(address, port.number);
  auto acceptor = std::make_unique<tcp::acceptor>(context);
  error_code error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(kBacklog, error);
  if (error) {
    return absl::UnavailableError(
        AbslView(port.flag + ": cannot listen on " + address.to_string() + " port " +
                 std::to_string(port.number) + ": " + error.message() +
                 "; free the port or choose another, such as " +
                 std::to_string(port.number < 65000 ? port.number + 10 : 8000)));
  }
  ports.push_back(acceptor->local_endpoint(error).port());
  acceptors.push_back(std::move(acceptor));
  return absl::OkStatus();
}

absl::StatusOr<FrontPorts> FrontPorts::Bind(asio::io_context& context,
                                            const FrontOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const asio::ip::address address, AddressOf(options.host));
  auto state = std::make_unique<State>();
  for (const FrontOptions::Port& port : options.ports) {
    QUIRE_RETURN_IF_ERROR(state->ListenOn(context, address, port));
  }
  return FrontPorts(std::move(state));
}

FrontPorts::FrontPorts(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrontPorts::FrontPorts(FrontPorts&&) noexcept = default;
FrontPorts::~FrontPorts() = default;

// A connection of which the first bytes are awaited.
struct Sniff {
  TlsTunnel::Socket socket;
  std::string bytes;
  TimerId timer = 0;
  TlsTunnels::Number tunnel = 0;  // that it comes out of; 0: none
};

struct Front::State {
  State(asio::io_context& loop, HttpServices& http_services, FrontOptions front_options,
        AdoptHttp2 adopt)
      : context(loop),
        services(http_services),
        options(std::move(front_options)),
        adopt_http2(std::move(adopt)),
        http(loop, http_services) {}

  void Accept(size_t listener);
  void Accepted(tcp::socket socket);
  void MakeTunnels();
  void Sniffed(TlsTunnel::Socket socket, TlsTunnels::Number tunnel);
  void AwaitFirstBytes(const std::shared_ptr<Sniff>& sniff);
  void OnFirstBytes(const std::shared_ptr<Sniff>& sniff, const error_code& error);
  void Forget(const std::shared_ptr<Sniff>& sniff);
  void ToHttp2(TlsTunnel::Socket client, std::string first_bytes, TlsTunnels::Number tunnel);
  // A connection counts until its client's socket is closed: that of a tunnel, or its own.
  void Closed(TlsTunnels::Number tunnel) {
    if (tunnel == 0) ConnectionClosed();
  }
  void ConnectionClosed();

  asio::io_context& context;
  HttpServices& services;
  FrontOptions options;
  AdoptHttp2 adopt_http2;
  HttpServer http;
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::vector<uint16_t> ports;
  std::vector<std::shared_ptr<Sniff>> sniffs;
  std::unique_ptr<TlsTunnels> tunnels;    // nullptr: in the clear
  std::set<TlsTunnels::Number> of_http1;  // tunnels that carry it, or whose first bytes are awaited
  std::vector<TimerId> accept_timers;
  size_t open = 0;
  bool stopping = false;
  // Handlers that were queued before the front went away look here first.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

Front::Front(asio::io_context& context, HttpServices& services, FrontOptions options,
             AdoptHttp2 adopt_http2)
    : state_(
          std::make_unique<State>(context, services, std::move(options), std::move(adopt_http2))) {
  if (state_->options.tls != nullptr) state_->MakeTunnels();
}

Front::~Front() {
  StartDraining();
  while (!state_->sniffs.empty()) state_->Forget(state_->sniffs.back());
  if (state_->tunnels != nullptr) state_->tunnels->CloseAll();
  *state_->alive = false;
}

absl::Status Front::Listen() {
  QUIRE_ASSIGN_OR_RETURN(FrontPorts bound, FrontPorts::Bind(state_->context, state_->options));
  Listen(std::move(bound));
  return absl::OkStatus();
}

void Front::Listen(FrontPorts bound) {
  QUIRE_CHECK_MSG(state_->acceptors.empty(), "a front listens once");
  state_->acceptors = std::move(bound.state_->acceptors);
  state_->ports = std::move(bound.state_->ports);
  state_->accept_timers.resize(state_->acceptors.size(), 0);
  for (size_t i = 0; i < state_->acceptors.size(); ++i) state_->Accept(i);
}

const std::vector<uint16_t>& Front::ports() const { return state_->ports; }
size_t Front::connections() const { return state_->open; }
size_t Front::http_connections() const {
  return state_->tunnels == nullptr ? state_->http.connections() : state_->of_http1.size();
}

void Front::StartDraining() {
  if (state_->stopping) return;
  state_->stopping = true;
  error_code ignored;
  for (const auto& acceptor : state_->acceptors) acceptor->close(ignored);
  for (TimerId& timer : state_->accept_timers) {
    if (timer != 0) state_->services.executor.Cancel(std::exchange(timer, 0));
  }
  state_->http.StartDraining();
}

void Front::State::Accept(size_t listener) {
  acceptors[listener]->async_accept(
      context, [this, listener, alive = alive](const error_code& error, tcp::socket socket) {
        // One that was accepted as the port closed is closed with `socket`.
        if (!*alive || stopping || error == asio::error::operation_aborted) return;
        if (!error) {
          Accepted(std::move(socket));
          Accept(listener);
          return;
        }
        accept_timers[listener] = services.executor.PostAt(
            services.executor.clock().Now() + kAcceptPause, [this, listener] {
              accept_timers[listener] = 0;
              Accept(listener);
            });
      });
}

void Front::State::Accepted(tcp::socket socket) {
  error_code ignored;
  if (open >= options.max_connections) {
    services.counters.connections_refused.Add();
    // Best effort: a client whose buffer is full on the first write is not owed more.
    (void)::send(socket.native_handle(), kTooMany.data(), kTooMany.size(),
                 MSG_DONTWAIT | MSG_NOSIGNAL);
    socket.close(ignored);
    return;
  }
  services.counters.connections_accepted.Add();
  ++open;
  services.counters.connections_open.Add(1);
  socket.set_option(tcp::no_delay(true), ignored);
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes,
                     sizeof(kMaxUnsentBytes));
  socket.non_blocking(true, ignored);
  if (tunnels == nullptr) return Sniffed(std::move(socket), 0);
  if (tunnels->Begin(std::move(socket), options.tls->current()) == 0) ConnectionClosed();
}

void Front::State::MakeTunnels() {
  TlsTunnels::Events events;
  events.on_open = [this](TlsTunnels::Number number, TlsTunnel::Socket near) {
    of_http1.insert(number);
    Sniffed(std::move(near), number);
  };
  events.on_closed = [this](TlsTunnels::Number number) {
    of_http1.erase(number);
    ConnectionClosed();
  };
  tunnels = std::make_unique<TlsTunnels>(
      TlsTunnel::Options{nullptr, options.tls_timeouts, services.executor,
                         CountersOf(services.counters), options.handshakes},
      options.max_tls_handshakes, services.counters.tls_handshakes_evicted, std::move(events));
}

void Front::State::Sniffed(TlsTunnel::Socket socket, TlsTunnels::Number tunnel) {
  auto sniff = std::make_shared<Sniff>(Sniff{std::move(socket), {}, 0, tunnel});
  sniffs.push_back(sniff);
  sniff->timer = services.executor.PostAt(
      services.executor.clock().Now() + options.first_bytes_timeout, [this, sniff] {
        sniff->timer = 0;
        services.counters.first_bytes_timeouts.Add();
        Forget(sniff);
        Closed(sniff->tunnel);
      });
  AwaitFirstBytes(sniff);
}

void Front::State::AwaitFirstBytes(const std::shared_ptr<Sniff>& sniff) {
  sniff->socket.async_wait(TlsTunnel::Socket::wait_read,
                           [this, sniff, alive = alive](const error_code& error) {
                             if (!*alive || error == asio::error::operation_aborted) return;
                             OnFirstBytes(sniff, error);
                           });
}

void Front::State::Forget(const std::shared_ptr<Sniff>& sniff) {
  const std::shared_ptr<Sniff> keep = sniff;
  if (keep->timer != 0) services.executor.Cancel(keep->timer);
  keep->timer = 0;
  error_code ignored;
  keep->socket.close(ignored);
  sniffs.erase(std::find(sniffs.begin(), sniffs.end(), keep));
}

void Front::State::OnFirstBytes(const std::shared_ptr<Sniff>& sniff, const error_code& wait_error) {
  error_code error = wait_error;
  if (!sniff->socket.is_open()) return;
  char buffer[kPreface.size()];
  size_t bytes = 0;
  if (!error) {
    bytes =
        sniff->socket.read_some(asio::buffer(buffer, kPreface.size() - sniff->bytes.size()), error);
  }
  if (error == asio::error::would_block || error == asio::error::interrupted) {
    AwaitFirstBytes(sniff);
    return;
  }
  if (error) {
    Forget(sniff);
    Closed(sniff->tunnel);
    return;
  }
  sniff->bytes.append(buffer, bytes);
  const bool may_be_http2 = kPreface.starts_with(sniff->bytes);
  if (may_be_http2 && sniff->bytes.size() < kPreface.size()) {
    AwaitFirstBytes(sniff);
    return;
  }
  TlsTunnel::Socket socket = std::move(sniff->socket);
  std::string first_bytes = std::move(sniff->bytes);
  Forget(sniff);
  if (may_be_http2) {
    ToHttp2(std::move(socket), std::move(first_bytes), sniff->tunnel);
  } else {
    http.Adopt(socket.release(), std::move(first_bytes),
               [this, tunnel = sniff->tunnel] { Closed(tunnel); });
  }
}

void Front::State::ToHttp2(TlsTunnel::Socket client, std::string first_bytes,
                           TlsTunnels::Number tunnel) {
  // Who comes so late finds a closed connection.
  if (stopping) {
    Closed(tunnel);
    return;
  }
  of_http1.erase(tunnel);  // one that has closed meanwhile leaves what it had brought
  adopt_http2(client.release(), std::move(first_bytes), [this, tunnel, alive = alive] {
    if (*alive) Closed(tunnel);
  });
}

void Front::State::ConnectionClosed() {
  QUIRE_CHECK(open > 0);
  --open;
  services.counters.connections_open.Add(-1);
}

bool IsLoopback(const std::string& host) {
  const auto address = AddressOf(host);
  return address.ok() && address->is_loopback();
}

}  // namespace quire
