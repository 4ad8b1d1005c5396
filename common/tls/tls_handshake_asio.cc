#include "common/tls/tls_handshake_asio.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "common/check.h"

namespace quire {

using Error = EdgeStream::Error;

TlsHandshake::TlsHandshake(Socket client, Options options, Done done)
    : options_(std::move(options)),
      done_(std::move(done)),
      client_(std::move(client)),
      ssl_(SSL_new(options_.context.get()), SSL_free) {
  QUIRE_CHECK(ssl_ != nullptr);
}

TlsHandshake::~TlsHandshake() { QUIRE_CHECK(closed_); }

void TlsHandshake::Start() {
  Error ignored;
  client_.non_blocking(true, ignored);
  SSL_set_fd(ssl_.get(), client_.native_handle());
  SSL_set_accept_state(ssl_.get());
  const Micros due = options_.executor.clock().Now() + options_.timeout;
  timer_ = options_.executor.PostAt(due, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->timer_ = 0;
    self->options_.counters.handshake_failures.Add();
    self->Close();
  });
  Await(Need::kRead);
}

void TlsHandshake::Close() {
  if (closed_) return;
  Error ignored;
  if (stepping_) {
    // Its descriptor is in use: it is closed when the step has ended, which this makes soon.
    ::shutdown(client_.native_handle(), SHUT_RDWR);
  } else {
    client_.close(ignored);
  }
  End(std::nullopt);
}

void TlsHandshake::End(std::optional<EdgeStream> stream) {
  closed_ = true;
  const auto self = shared_from_this();  // done_ may drop the owner's reference
  if (timer_ != 0) options_.executor.Cancel(std::exchange(timer_, 0));
  ERR_clear_error();
  std::exchange(done_, nullptr)(std::move(stream));
}

TlsHandshake::Need TlsHandshake::NeedOf(const ssl_st* ssl, int result) {
  if (result > 0) return Need::kNothing;
  const int error = SSL_get_error(ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return Need::kRead;
  if (error == SSL_ERROR_WANT_WRITE) return Need::kWrite;
  return Need::kFailed;
}

void TlsHandshake::Await(Need need) {
  client_.async_wait(need == Need::kRead ? Socket::wait_read : Socket::wait_write,
                     [self = shared_from_this()](const Error& error) {
                       if (self->closed_) return;
                       if (error) return self->Close();
                       self->Step();
                     });
}

void TlsHandshake::Step() {
  auto need = std::make_shared<Need>(Need::kFailed);
  const auto step = [ssl = ssl_.get(), need] {
    ERR_clear_error();
    *need = NeedOf(ssl, SSL_accept(ssl));
  };
  if (options_.pool == nullptr) {
    step();
    return Stepped(*need);
  }
  stepping_ = true;
  const bool queued = options_.pool->Run(step, [self = shared_from_this(), need] {
    self->stepping_ = false;
    self->Stepped(*need);
  });
  if (queued) return;
  stepping_ = false;
  options_.counters.handshakes_refused.Add();
  Close();
}

void TlsHandshake::Stepped(Need need) {
  if (closed_) {
    Error ignored;
    client_.close(ignored);
    return;
  }
  switch (need) {
    case Need::kRead:
    case Need::kWrite:
      return Await(need);
    case Need::kFailed:
      options_.counters.handshake_failures.Add();
      return Close();
    case Need::kNothing:
      options_.counters.handshakes.Add();
      return End(EdgeStream(std::move(client_), std::move(ssl_), options_.counters.idle_records));
  }
}

}  // namespace quire
