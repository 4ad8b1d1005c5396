// The bytes of one connection, in the clear or through TLS: reads and writes that never wait, and
// waits until more is possible.
//
// Owner: the protocol's session on the connection; event loop only. The waiting code owns its wait.
//
// Invariants:
// 1. TLS runs on the accepted socket, once a handshake has ended: an idle connection holds no
//    buffer, and nothing waits between the client and the session except the rest of a record.
// 2. One Read takes at most TlsGuard::kMaxRecordsPerTurn records, one Write sends at most
//    kMaxTlsBytesPerTurn: a session that has more to do waits for its next turn.
// 3. A Write that could not send everything is repeated with the rest, and perhaps more after it.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <memory>
#include <string_view>
#include <utility>

#include "common/metrics/metrics.h"

struct ssl_st;

namespace boost::asio {
class io_context;
}

namespace quire {

inline constexpr size_t kMaxTlsBytesPerTurn = 256u << 10;

class EdgeStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Error = boost::system::error_code;
  using Ssl = std::unique_ptr<ssl_st, void (*)(ssl_st*)>;

  // In the clear.
  explicit EdgeStream(Socket socket);
  // Takes over the descriptor, of any address family.
  EdgeStream(boost::asio::io_context& context, int fd);
  // Through TLS, whose handshake has ended on this socket. `idle_records` counts a connection that
  // is closed because it sends record after record without a byte.
  EdgeStream(Socket socket, Ssl ssl, Counter& idle_records);
  EdgeStream(EdgeStream&&) noexcept;
  EdgeStream& operator=(EdgeStream&&) = delete;
  ~EdgeStream();

  // How many bytes it moved. If fewer than requested, `error` says why: MustWait(error) means that
  // no more can be read or written now, eof that the peer has ended.
  size_t Read(char* at, size_t most, Error& error);
  size_t Write(std::string_view bytes, Error& error);

  // Calls `ready(error)` later, once a Read or a Write may move something.
  template <class Ready>
  void AwaitBytes(Ready ready) {
    if (HasBytes()) {
      boost::asio::post(socket_.get_executor(),
                        [ready = std::move(ready)]() mutable { ready(Error()); });
    } else {
      socket_.async_wait(reads_by_writing() ? Socket::wait_write : Socket::wait_read,
                         std::move(ready));
    }
  }
  template <class Ready>
  void AwaitRoom(Ready ready) {
    socket_.async_wait(Socket::wait_write, std::move(ready));
  }

  // Everything has been written: the peer is notified.
  void EndWriting();
  // Waits end with operation_aborted.
  void Close();
  bool is_open() const { return socket_.is_open(); }
  auto get_executor() { return socket_.get_executor(); }

 private:
  struct Tls;

  size_t ReadTls(char* at, size_t most, Error& error);
  size_t WriteTls(std::string_view bytes, Error& error);
  void SayEnd();
  bool HasBytes() const;          // that came with others, and were not taken
  bool reads_by_writing() const;  // TLS has something to say first

  Socket socket_;
  std::unique_ptr<Tls> tls_;  // nullptr: in the clear
};

}  // namespace quire
