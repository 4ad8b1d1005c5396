#include "router/front/front.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/runtime/must_wait_asio.h"
#include "router/front/proxy_header.h"
#include "router/front/seats.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 1024;
// Output that a client has no room for waits here, where its slowness shows, and not in the
// kernel's buffers, which grow to megabytes for each connection.
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

// The client of a connection, and the kind of place that it has.
struct Arrival {
  Seats::Number number = 0;
  std::shared_ptr<ClientSeat> seat = {};
  bool grpc_port = false;
  std::string bytes = {};  // that were read already
};

// A connection whose first bytes have not come yet.
struct Sniff {
  EdgeStream stream;
  Arrival arrival;
  TimerId timer = 0;
};

// A connection of a trusted proxy, which may first name its client.
struct Proxied {
  tcp::socket socket;
  Arrival arrival;
  TimerId timer = 0;
};

struct Front::State {
  State(asio::io_context& loop, HttpServices& http_services, FrontOptions front_options,
        AdoptHttp2 adopt)
      : context(loop),
        services(http_services),
        options(std::move(front_options)),
        adopt_http2(std::move(adopt)),
        seats({options.max_connections, options.max_connections_per_address, options.proxies}),
        http(http_services) {}

  void Accept(size_t listener);
  void Accepted(tcp::socket socket, bool grpc_port);
  void Refuse(tcp::socket socket);  // its address has its share
  void AwaitProxy(const std::shared_ptr<Proxied>& proxied);
  void OnProxyBytes(const std::shared_ptr<Proxied>& proxied);
  void Forget(const std::shared_ptr<Proxied>& proxied);
  void ShakeHands(tcp::socket socket, Arrival arrival);
  void MakeHandshakes();
  void Sniffed(EdgeStream stream, Arrival arrival);
  void AwaitFirstBytes(const std::shared_ptr<Sniff>& sniff);
  void OnFirstBytes(const std::shared_ptr<Sniff>& sniff, const error_code& error);
  void Forget(const std::shared_ptr<Sniff>& sniff);
  void ToHttp2(EdgeStream stream, Arrival arrival);
  void Closed(Seats::Number number);

  asio::io_context& context;
  HttpServices& services;
  FrontOptions options;
  AdoptHttp2 adopt_http2;
  Seats seats;  // gets the end of each connection, those of `http` included
  HttpServer http;
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::vector<uint16_t> ports;
  std::vector<std::shared_ptr<Proxied>> proxied;
  std::vector<std::shared_ptr<Sniff>> sniffs;
  std::unique_ptr<TlsHandshakes> handshakes;  // nullptr: in the clear
  std::vector<TimerId> accept_timers;
  bool stopping = false;
  // Handlers that were queued before the front was destroyed check this first.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

Front::Front(asio::io_context& context, HttpServices& services, FrontOptions options,
             AdoptHttp2 adopt_http2)
    : state_(
          std::make_unique<State>(context, services, std::move(options), std::move(adopt_http2))) {
  if (state_->options.tls != nullptr) state_->MakeHandshakes();
}

Front::~Front() {
  StartDraining();
  while (!state_->proxied.empty()) state_->Forget(state_->proxied.back());
  while (!state_->sniffs.empty()) state_->Forget(state_->sniffs.back());
  if (state_->handshakes != nullptr) state_->handshakes->CloseAll();
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
size_t Front::connections() const { return state_->seats.taken(); }
size_t Front::http_connections() const { return state_->http.connections(); }

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
        // A connection that is accepted as the port closes is closed with `socket`.
        if (!*alive || stopping || error == asio::error::operation_aborted) return;
        if (!error) {
          Accepted(std::move(socket), options.ports[listener].grpc);
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

void Front::State::Accepted(tcp::socket socket, bool grpc_port) {
  error_code ignored;
  const int fd = socket.native_handle();
  Arrival arrival{.seat = std::make_shared<ClientSeat>(), .grpc_port = grpc_port};
  arrival.seat->address = ClientAddress::OfPeer(fd);
  const uint64_t gave_way = seats.gave_way();
  // The connection is notified that it must end, and closes.
  arrival.number = seats.Sit(arrival.seat, [fd] { ::shutdown(fd, SHUT_RDWR); });
  services.counters.connections_gave_way.Add(seats.gave_way() - gave_way);
  if (arrival.number == 0) return Refuse(std::move(socket));
  services.counters.connections_accepted.Add();
  services.counters.connections_open.Add(1);
  socket.set_option(tcp::no_delay(true), ignored);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes, sizeof(kMaxUnsentBytes));
  socket.non_blocking(true, ignored);
  if (arrival.seat->proxies == nullptr) return ShakeHands(std::move(socket), std::move(arrival));
  auto one = std::make_shared<Proxied>(Proxied{std::move(socket), std::move(arrival), 0});
  proxied.push_back(one);
  one->timer = services.executor.PostAt(
      services.executor.clock().Now() + options.first_bytes_timeout, [this, one] {
        one->timer = 0;
        services.counters.first_bytes_timeouts.Add();
        Forget(one);
        Closed(one->arrival.number);
      });
  AwaitProxy(one);
}

void Front::State::Refuse(tcp::socket socket) {
  services.counters.connections_of_address_refused.Add();
  // Best effort: nothing more is due to a client whose buffer is full on the first write.
  (void)::send(socket.native_handle(), kTooMany.data(), kTooMany.size(),
               MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Front::State::AwaitProxy(const std::shared_ptr<Proxied>& one) {
  one->socket.async_wait(tcp::socket::wait_read, [this, one, alive = alive](const error_code&) {
    if (*alive && one->socket.is_open()) OnProxyBytes(one);
  });
}

void Front::State::Forget(const std::shared_ptr<Proxied>& forgotten) {
  const std::shared_ptr<Proxied> one = forgotten;
  if (one->timer != 0) services.executor.Cancel(std::exchange(one->timer, 0));
  error_code ignored;
  one->socket.close(ignored);
  proxied.erase(std::find(proxied.begin(), proxied.end(), one));
}

// The bytes after a header belong to TLS, or to the session: none of them is consumed here.
void Front::State::OnProxyBytes(const std::shared_ptr<Proxied>& one) {
  std::string& bytes = one->arrival.bytes;
  const size_t before = bytes.size();
  const int fd = one->socket.native_handle();
  bytes.resize(kMaxProxyHeaderBytes);
  const ssize_t count = ::recv(fd, bytes.data() + before, bytes.size() - before, MSG_PEEK);
  bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return AwaitProxy(one);
  const ProxyHeader header = ReadProxyHeader(bytes);
  using Kind = ProxyHeader::Kind;
  const bool ended = count <= 0 || header.kind == Kind::kBroken;
  if (header.kind == Kind::kBroken) services.counters.proxy_headers_broken.Add();
  if (header.kind == Kind::kNone) {
    bytes.resize(before);
  } else if (!ended) {
    const size_t taken = header.kind == Kind::kWhole ? header.bytes : bytes.size();
    (void)::recv(fd, bytes.data() + before, taken - before, 0);
  }
  if (!ended && header.kind == Kind::kMore) return AwaitProxy(one);
  tcp::socket socket = std::move(one->socket);
  Arrival arrival = std::move(one->arrival);
  Forget(one);
  if (header.kind == Kind::kWhole) arrival.bytes.clear();
  if (!ended && header.client && !seats.Name(arrival.number, *header.client)) {
    Closed(arrival.number);
    return Refuse(std::move(socket));
  }
  if (ended) return Closed(arrival.number);
  ShakeHands(std::move(socket), std::move(arrival));
}

void Front::State::ShakeHands(tcp::socket socket, Arrival arrival) {
  if (handshakes == nullptr) return Sniffed(EdgeStream(std::move(socket)), std::move(arrival));
  const Seats::Number number = arrival.number;
  const TlsContext& context = options.tls->current(arrival.grpc_port);
  const bool begun = handshakes->Begin(
      std::move(socket), context,
      [this, arrival = std::move(arrival)](std::optional<EdgeStream> stream) mutable {
        if (!stream) return Closed(arrival.number);
        Sniffed(*std::move(stream), std::move(arrival));
      });
  if (!begun) Closed(number);
}

void Front::State::MakeHandshakes() {
  handshakes = std::make_unique<TlsHandshakes>(
      TlsHandshake::Options{nullptr, options.tls_handshake_timeout, services.executor,
                            CountersOf(services.counters), options.handshakes},
      options.max_tls_handshakes, services.counters.tls_handshakes_evicted);
}

void Front::State::Sniffed(EdgeStream stream, Arrival arrival) {
  auto sniff = std::make_shared<Sniff>(Sniff{std::move(stream), std::move(arrival), 0});
  sniffs.push_back(sniff);
  sniff->timer = services.executor.PostAt(
      services.executor.clock().Now() + options.first_bytes_timeout, [this, sniff] {
        sniff->timer = 0;
        services.counters.first_bytes_timeouts.Add();
        Forget(sniff);
        Closed(sniff->arrival.number);
      });
  AwaitFirstBytes(sniff);
}

void Front::State::AwaitFirstBytes(const std::shared_ptr<Sniff>& sniff) {
  sniff->stream.AwaitBytes([this, sniff, alive = alive](const error_code& error) {
    if (!*alive || error == asio::error::operation_aborted) return;
    OnFirstBytes(sniff, error);
  });
}

void Front::State::Forget(const std::shared_ptr<Sniff>& sniff) {
  const std::shared_ptr<Sniff> keep = sniff;
  if (keep->timer != 0) services.executor.Cancel(keep->timer);
  keep->timer = 0;
  keep->stream.Close();
  sniffs.erase(std::find(sniffs.begin(), sniffs.end(), keep));
}

void Front::State::OnFirstBytes(const std::shared_ptr<Sniff>& sniff, const error_code& wait_error) {
  error_code error = wait_error;
  if (!sniff->stream.is_open()) return;
  std::string& bytes = sniff->arrival.bytes;
  char buffer[kPreface.size()];
  size_t count = 0;
  if (!error) count = sniff->stream.Read(buffer, kPreface.size() - bytes.size(), error);
  if (count == 0 && MustWait(error)) return AwaitFirstBytes(sniff);
  if (count == 0) {
    Forget(sniff);
    return Closed(sniff->arrival.number);
  }
  bytes.append(buffer, count);
  const bool may_be_http2 = kPreface.starts_with(bytes);
  if (may_be_http2 && bytes.size() < kPreface.size()) return AwaitFirstBytes(sniff);
  EdgeStream stream = std::move(sniff->stream);
  Arrival arrival = std::move(sniff->arrival);
  Forget(sniff);
  if (may_be_http2) return ToHttp2(std::move(stream), std::move(arrival));
  http.Adopt(
      std::move(stream), std::move(arrival.bytes),
      [this, number = arrival.number] { Closed(number); }, std::move(arrival.seat));
}

void Front::State::ToHttp2(EdgeStream stream, Arrival arrival) {
  // A client that comes so late finds a closed connection.
  if (stopping) return Closed(arrival.number);
  adopt_http2(
      std::move(stream), std::move(arrival.bytes),
      [this, number = arrival.number, alive = alive] {
        if (*alive) Closed(number);
      },
      std::move(arrival.seat));
}

void Front::State::Closed(Seats::Number number) {
  seats.Leave(number);
  services.counters.connections_open.Add(-1);
}

}  // namespace quire
