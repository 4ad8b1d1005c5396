#include "common/tls/edge_stream_asio.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "common/runtime/adopt_asio.h"
#include "common/tls/tls_guard.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using Error = EdgeStream::Error;

// The error of an SSL_read or SSL_write.
Error ErrorOf(const ssl_st* ssl, int result) {
  const int error = SSL_get_error(ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return asio::error::would_block;
  }
  if (error == SSL_ERROR_ZERO_RETURN) return asio::error::eof;
  return asio::error::connection_reset;
}

int IntOf(size_t bytes) { return static_cast<int>(std::min<size_t>(bytes, INT_MAX)); }

}  // namespace

struct EdgeStream::Tls {
  Tls(Ssl with, Counter& counter) : ssl(std::move(with)), idle_records(counter) {
    guard.Watch(ssl.get());
  }

  TlsGuard guard;
  Ssl ssl;
  Counter& idle_records;
  bool reads_by_writing = false;
  bool spent = false;   // and counted
  bool broken = false;  // no TLS record may follow
};

EdgeStream::EdgeStream(Socket socket) : socket_(std::move(socket)) {
  Error ignored;
  socket_.non_blocking(true, ignored);
}
EdgeStream::EdgeStream(asio::io_context& context, int fd) : EdgeStream(AdoptSocket(context, fd)) {}
EdgeStream::EdgeStream(Socket socket, Ssl ssl, Counter& idle_records)
    : socket_(std::move(socket)), tls_(std::make_unique<Tls>(std::move(ssl), idle_records)) {}
EdgeStream::EdgeStream(EdgeStream&&) noexcept = default;
EdgeStream::~EdgeStream() = default;

bool EdgeStream::HasBytes() const {
  return tls_ != nullptr && socket_.is_open() && SSL_pending(tls_->ssl.get()) > 0;
}

bool EdgeStream::reads_by_writing() const { return tls_ != nullptr && tls_->reads_by_writing; }

size_t EdgeStream::Read(char* at, size_t most, Error& error) {
  error = {};
  if (tls_ != nullptr) return ReadTls(at, most, error);
  return socket_.read_some(asio::buffer(at, most), error);
}

size_t EdgeStream::ReadTls(char* at, size_t most, Error& error) {
  Tls& tls = *tls_;
  tls.guard.NewTurn();
  tls.reads_by_writing = false;
  size_t moved = 0;
  while (moved < most) {
    ERR_clear_error();
    const int count = SSL_read(tls.ssl.get(), at + moved, IntOf(most - moved));
    if (count > 0) {
      moved += static_cast<size_t>(count);
      tls.guard.GotBytes();
      continue;
    }
    tls.reads_by_writing = SSL_want_write(tls.ssl.get());
    error = ErrorOf(tls.ssl.get(), count);
    break;
  }
  if (tls.guard.over()) {
    if (!tls.spent) tls.idle_records.Add();
    tls.spent = true;
    error = asio::error::connection_aborted;
  }
  tls.broken = error == asio::error::connection_reset || tls.spent;
  return moved;
}

size_t EdgeStream::Write(std::string_view bytes, Error& error) {
  error = {};
  if (tls_ != nullptr) return WriteTls(bytes, error);
  const ssize_t sent =
      ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return bytes.size();
  if (sent >= 0) {
    error = asio::error::would_block;
    return static_cast<size_t>(sent);
  }
  error = Error(errno, boost::system::system_category());
  return 0;
}

size_t EdgeStream::WriteTls(std::string_view bytes, Error& error) {
  Tls& tls = *tls_;
  size_t moved = 0;
  while (moved < bytes.size()) {
    if (moved >= kMaxTlsBytesPerTurn) {
      error = asio::error::would_block;
      break;
    }
    ERR_clear_error();
    const int count = SSL_write(tls.ssl.get(), bytes.data() + moved, IntOf(bytes.size() - moved));
    if (count > 0) {
      moved += static_cast<size_t>(count);
      continue;
    }
    error = ErrorOf(tls.ssl.get(), count);
    tls.broken = error == asio::error::connection_reset;
    break;
  }
  return moved;
}

// A peer without a closing record may treat the bytes as cut short.
void EdgeStream::SayEnd() {
  if (tls_ == nullptr || tls_->broken || !socket_.is_open()) return;
  ERR_clear_error();
  SSL_shutdown(tls_->ssl.get());
  ERR_clear_error();
  tls_->broken = true;  // said once
}

void EdgeStream::EndWriting() {
  SayEnd();
  ::shutdown(socket_.native_handle(), SHUT_WR);
}

void EdgeStream::Close() {
  SayEnd();
  Error ignored;
  socket_.close(ignored);
}

}  // namespace quire
