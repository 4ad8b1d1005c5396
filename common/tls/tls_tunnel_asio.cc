#include "common/tls/tls_tunnel_asio.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>

#include "common/check.h"
#include "common/runtime/must_wait_asio.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kChunkBytes = 16u << 10;  // a record of TLS holds no more
constexpr int kPairBufferBytes = 32 << 10;
constexpr int kMaxStepsPerTurn = 16;  // then other connections have their turn

}  // namespace

TlsTunnel::TlsTunnel(Socket client, Options options, Events events)
    : options_(std::move(options)),
      events_(std::move(events)),
      client_(std::move(client)),
      inner_(client_.get_executor()),
      ssl_(SSL_new(options_.context.get()), SSL_free) {
  QUIRE_CHECK(ssl_ != nullptr);
}

TlsTunnel::~TlsTunnel() { QUIRE_CHECK(closed_); }

void TlsTunnel::Start() {
  error_code ignored;
  client_.non_blocking(true, ignored);
  SSL_set_fd(ssl_.get(), client_.native_handle());
  SSL_set_accept_state(ssl_.get());
  SetDeadline(options_.timeouts.handshake);
  Await(client_, true, client_reads_);
}

void TlsTunnel::Close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();  // on_closed may drop the owner's reference
  SetDeadline(0);
  error_code ignored;
  if (shaking_) {
    // Its descriptor is in use: it is closed when the step has ended, which this makes soon.
    ::shutdown(client_.native_handle(), SHUT_RDWR);
  } else {
    client_.close(ignored);
  }
  inner_.close(ignored);
  ERR_clear_error();
  const std::function<void()> on_closed = std::move(events_.on_closed);
  events_ = {};
  if (on_closed) on_closed();
}

TlsTunnel::Need TlsTunnel::NeedOf(const ssl_st* ssl, int result) {
  if (result > 0) return Need::kNothing;
  const int error = SSL_get_error(ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return Need::kRead;
  if (error == SSL_ERROR_WANT_WRITE) return Need::kWrite;
  return Need::kFailed;
}

void TlsTunnel::Await(Socket& socket, bool for_read, bool& waiting) {
  if (waiting) return;
  waiting = true;
  socket.async_wait(for_read ? Socket::wait_read : Socket::wait_write,
                    [self = shared_from_this(), &waiting](const error_code& error) {
                      waiting = false;
                      if (self->closed_) return;
                      if (error) {
                        self->Close();
                      } else if (self->opened_) {
                        self->Pump();
                      } else {
                        self->Handshake();
                      }
                    });
}

void TlsTunnel::AwaitClient(Need need) {
  const bool for_read = need == Need::kRead;
  Await(client_, for_read, for_read ? client_reads_ : client_writes_);
}

void TlsTunnel::SetDeadline(Micros delay) {
  if (timer_ != 0) options_.executor.Cancel(timer_);
  timer_ = 0;
  if (delay == 0) return;
  timer_ =
      options_.executor.PostAt(options_.executor.clock().Now() + delay, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        self->timer_ = 0;
        const TlsCounters& counters = self->options_.counters;
        if (!self->opened_) {
          counters.handshake_failures.Add();
        } else if (self->stalled_) {
          counters.write_timeouts.Add();
        }
        self->Close();
      });
}

void TlsTunnel::Handshake() {
  if (shaking_) return;
  auto need = std::make_shared<Need>(Need::kFailed);
  const auto step = [ssl = ssl_.get(), need] {
    ERR_clear_error();
    *need = NeedOf(ssl, SSL_accept(ssl));
  };
  if (options_.handshakes == nullptr) {
    step();
    return HandshakeStepped(*need);
  }
  shaking_ = true;
  const bool queued = options_.handshakes->Run(step, [self = shared_from_this(), need] {
    self->shaking_ = false;
    self->HandshakeStepped(*need);
  });
  if (queued) return;
  shaking_ = false;
  options_.counters.handshakes_refused.Add();
  Close();
}

void TlsTunnel::HandshakeStepped(Need need) {
  if (closed_) {
    error_code ignored;
    client_.close(ignored);
    return;
  }
  if (need == Need::kNothing) {
    SetDeadline(0);
    if (Open()) Pump();
    return;
  }
  if (need != Need::kFailed) {
    AwaitClient(need);
    return;
  }
  options_.counters.handshake_failures.Add();
  Close();
}

bool TlsTunnel::Open() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    options_.counters.connections_refused.Add();
    Close();
    return false;
  }
  // Little may be under way unseen: what the session has written counts as taken by the client.
  for (const int fd : pair) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kPairBufferBytes, sizeof(kPairBufferBytes));
  }
  error_code ignored;
  const asio::generic::stream_protocol local(AF_UNIX, 0);
  inner_.assign(local, pair[0], ignored);
  Socket near(client_.get_executor());
  near.assign(local, pair[1], ignored);
  inner_.non_blocking(true, ignored);
  near.non_blocking(true, ignored);
  opened_ = true;
  guard_.Watch(ssl_.get());
  options_.counters.handshakes.Add();
  const auto on_open = std::move(events_.on_open);
  on_open(std::move(near));
  return !closed_;
}

void TlsTunnel::Pump() {
  guard_.NewTurn();
  if (PumpIn() && PumpOut() && client_ended_ && inner_ended_) Close();
}

void TlsTunnel::PumpLater() {
  if (posted_) return;
  posted_ = true;
  asio::post(client_.get_executor(), [self = shared_from_this()] {
    self->posted_ = false;
    if (!self->closed_) self->Pump();
  });
}

bool TlsTunnel::Spent() {
  if (!guard_.over()) return false;
  options_.counters.idle_records.Add();
  Close();
  return true;
}

bool TlsTunnel::PumpIn() {
  for (int step = 0; step < kMaxStepsPerTurn && !client_ended_; ++step) {
    while (inner_offset_ < to_inner_.size()) {
      error_code error;
      inner_offset_ += inner_.write_some(
          asio::buffer(to_inner_.data() + inner_offset_, to_inner_.size() - inner_offset_), error);
      if (MustWait(error)) {
        Await(inner_, false, inner_writes_);
        return true;
      }
      if (error) {  // what lies behind reads no more: its last words still go out
        to_inner_.clear();
        inner_offset_ = 0;
        client_ended_ = true;
        return true;
      }
    }
    inner_offset_ = 0;
    to_inner_.resize(kChunkBytes);
    ERR_clear_error();
    const int count = SSL_read(ssl_.get(), to_inner_.data(), static_cast<int>(to_inner_.size()));
    to_inner_.resize(static_cast<size_t>(std::max(count, 0)));
    if (count > 0) {
      guard_.GotBytes();
      continue;
    }
    to_inner_.shrink_to_fit();
    if (Spent()) return false;
    if ((SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0) {
      client_ended_ = true;
      ::shutdown(inner_.native_handle(), SHUT_WR);
      return true;
    }
    const Need need = NeedOf(ssl_.get(), count);
    if (need == Need::kFailed) {
      Close();
      return false;
    }
    AwaitClient(need);
    return true;
  }
  if (!client_ended_) PumpLater();
  return true;
}

void TlsTunnel::InnerEnded() {
  inner_ended_ = true;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::shutdown(client_.native_handle(), SHUT_WR);
  stalled_ = false;
  SetDeadline(options_.timeouts.linger);
}

bool TlsTunnel::PumpOut() {
  for (int step = 0; step < kMaxStepsPerTurn && !inner_ended_; ++step) {
    while (client_offset_ < to_client_.size()) {
      ERR_clear_error();
      const int count = SSL_write(ssl_.get(), to_client_.data() + client_offset_,
                                  static_cast<int>(to_client_.size() - client_offset_));
      if (count > 0) {
        client_offset_ += static_cast<size_t>(count);
        if (stalled_) SetDeadline(0);
        stalled_ = false;
        continue;
      }
      const Need need = NeedOf(ssl_.get(), count);
      if (need == Need::kFailed) {
        Close();
        return false;
      }
      if (!stalled_) SetDeadline(options_.timeouts.write);
      stalled_ = true;
      AwaitClient(need);
      return true;
    }
    client_offset_ = 0;
    to_client_.resize(kChunkBytes);
    error_code error;
    to_client_.resize(inner_.read_some(asio::buffer(to_client_), error));
    if (!error) continue;
    to_client_.shrink_to_fit();
    if (MustWait(error)) {
      Await(inner_, true, inner_reads_);
      return true;
    }
    InnerEnded();
    return true;
  }
  if (!inner_ended_) PumpLater();
  return true;
}

}  // namespace quire
