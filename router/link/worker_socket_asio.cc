#include "router/link/worker_socket_asio.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "common/check.h"
#include "common/host_port.h"
#include "common/runtime/must_wait_asio.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

// How long sent data may stay unacknowledged by the peer.
constexpr unsigned int kUnansweredMs = 10'000;

}  // namespace

WorkerSocket::WorkerSocket(AsioExecutor& executor, Resolver& resolver, Events& events)
    : executor_(executor), resolver_(resolver), events_(&events), socket_(executor.context()) {}

void WorkerSocket::Connect(const std::string& target, TlsConnection tls) {
  target_ = target;
  tls_ = std::move(tls);
  const absl::Status valid = CheckTarget(target);
  const HostPort parts = valid.ok() ? *ParseHostPort(target) : HostPort();
  port_ = parts.port;
  Error no_address;
  asio::ip::make_address(parts.host, no_address);
  if (valid.ok() && no_address) {
    resolver_.Resolve(parts.host, [weak = weak_from_this()](const auto& addresses) {
      if (const auto self = weak.lock()) self->Found(addresses);
    });
    return;
  }
  asio::post(socket_.get_executor(), [self = shared_from_this(), valid, host = parts.host] {
    if (valid.ok()) return self->Found(std::vector<std::string>{host});
    self->Found(valid);
  });
}

void WorkerSocket::Found(const absl::StatusOr<std::vector<std::string>>& addresses) {
  if (events_ == nullptr) return;
  if (!addresses.ok()) return Fail(addresses.status());
  for (const std::string& address : *addresses) {
    Error error;
    const auto parsed = asio::ip::make_address(address, error);
    if (!error && endpoints_.size() < kMaxWorkerAddresses) endpoints_.emplace_back(parsed, port_);
  }
  if (endpoints_.empty()) return Fail(absl::UnavailableError("the name has no address"));
  TryNext();
}

void WorkerSocket::TryNext() {
  if (next_ == endpoints_.size()) {
    return Fail(why_.ok() ? absl::UnavailableError("Connection refused") : why_);
  }
  const tcp::endpoint& endpoint = endpoints_[next_++];
  Error error;
  socket_ = Socket(executor_.context());
  socket_.open(endpoint.protocol(), error);
  if (!error) socket_.non_blocking(true, error);
  if (error) {
    why_ = absl::UnavailableError(AbslView(error.message()));
    return TryNext();
  }
  socket_.set_option(tcp::no_delay(true), error);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs,
               sizeof(kUnansweredMs));
  SetDeadline(ConnectTimeoutOf(endpoints_.size()));
  socket_.async_connect(endpoint,
                        [self = shared_from_this()](const Error& tried) { self->Tried(tried); });
}

void WorkerSocket::Tried(const Error& error) {
  if (events_ == nullptr) return;
  SetDeadline(0);
  if (error) {
    if (late_) {
      why_ = absl::UnavailableError("no connection in time");
    } else if (error != asio::error::connection_refused) {
      why_ = absl::UnavailableError(AbslView(error.message()));
    }
    late_ = false;
    return TryNext();
  }
  if (const Error renewed = ForgetConnecting(); renewed) {
    why_ = absl::UnavailableError(AbslView(renewed.message()));
    return TryNext();
  }
  if (tls_ == nullptr) {
    connected_ = true;
    return events_->OnConnected();
  }
  SSL_set_fd(tls_.get(), socket_.native_handle());
  SetDeadline(kWorkerHandshakeTimeout);
  Handshake();
}

// Connecting waits until the system has room to write, and asio would keep that interest: every
// wait for bytes would also report room to write.
WorkerSocket::Error WorkerSocket::ForgetConnecting() {
  const tcp protocol = endpoints_[next_ - 1].protocol();
  Error error;
  const int descriptor = socket_.release(error);
  if (error) return error;
  socket_.assign(protocol, descriptor, error);
  if (error) {
    ::close(descriptor);
    return error;
  }
  socket_.non_blocking(true, error);
  return error;
}

void WorkerSocket::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  if (result != 1) {
    const int error = SSL_get_error(tls_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return Await(Outcome::kRead);
    if (error == SSL_ERROR_WANT_WRITE) return Await(Outcome::kWrite);
  }
  SetDeadline(0);
  const absl::Status status = HandshakeStatus(tls_.get(), result == 1);
  if (!status.ok()) return Fail(status);
  connected_ = true;
  events_->OnConnected();
}

void WorkerSocket::Fail(const absl::Status& why) {
  Events* events = events_;
  Close();
  events->OnNotConnected(absl::UnavailableError(AbslView(target_ + ": " + StatusMessage(why))));
}

void WorkerSocket::SetDeadline(Micros delay) {
  if (deadline_ != 0) executor_.Cancel(deadline_);
  deadline_ = 0;
  if (delay == 0) return;
  deadline_ = executor_.PostAt(executor_.clock().Now() + delay, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->events_ == nullptr) return;
    self->deadline_ = 0;
    self->late_ = true;
    Error ignored;
    self->socket_.close(ignored);  // the waits end with this error
  });
}

void WorkerSocket::Await(Outcome outcome) {
  const bool for_read = outcome == Outcome::kRead;
  bool& awaits = for_read ? awaits_read_ : awaits_write_;
  if (awaits || events_ == nullptr) return;
  awaits = true;
  socket_.async_wait(for_read ? Socket::wait_read : Socket::wait_write,
                     [self = shared_from_this(), &awaits](const Error& error) {
                       awaits = false;
                       if (self->events_ == nullptr) return;
                       if (self->connected_) return self->events_->OnReady();
                       if (!error) return self->Handshake();
                       self->Fail(absl::UnavailableError("TLS: no handshake in time"));
                     });
}

WorkerSocket::Outcome WorkerSocket::OutcomeOf(const Error& error) {
  if (!error) return Outcome::kMoved;
  if (error == asio::error::eof) return Outcome::kEnded;
  return Outcome::kFailed;
}

WorkerSocket::Outcome WorkerSocket::OutcomeOf(int result) {
  const int error = SSL_get_error(tls_.get(), result);
  ERR_clear_error();
  switch (error) {
    case SSL_ERROR_NONE:
      return Outcome::kMoved;
    case SSL_ERROR_WANT_READ:
      return Outcome::kRead;
    case SSL_ERROR_WANT_WRITE:
      return Outcome::kWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Outcome::kEnded;
    default:
      return Outcome::kFailed;
  }
}

WorkerSocket::Outcome WorkerSocket::Read(char* at, size_t most, size_t& moved) {
  moved = 0;
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int count = SSL_read(tls_.get(), at, static_cast<int>(most));
    moved = static_cast<size_t>(std::max(count, 0));
    return OutcomeOf(count);
  }
  Error error;
  moved = socket_.read_some(asio::buffer(at, most), error);
  if (MustWait(error)) return Outcome::kRead;
  return OutcomeOf(error);
}

WorkerSocket::Outcome WorkerSocket::Write(std::string_view bytes, size_t& moved) {
  moved = 0;
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int count = SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
    moved = static_cast<size_t>(std::max(count, 0));
    return OutcomeOf(count);
  }
  Error error;
  moved = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
  if (MustWait(error)) return Outcome::kWrite;
  return OutcomeOf(error);
}

void WorkerSocket::Close() {
  if (events_ == nullptr) return;
  events_ = nullptr;
  SetDeadline(0);
  if (connected_ && tls_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
    ERR_clear_error();
  }
  Error ignored;
  socket_.close(ignored);
}

}  // namespace quire
