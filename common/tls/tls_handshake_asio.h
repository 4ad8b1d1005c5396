// The handshake of one TLS connection of a client. Its result is a stream to read and write.
//
// Owner: its own pending socket operations (a shared_ptr in each); TlsHandshakes keeps one too, to
// close it. Event loop only.
//
// Invariants:
// 1. Each step of a handshake, which costs a signature of milliseconds, runs on a thread of its
//    pool; while one does, nothing else touches the connection except its closing, which waits for
//    the step.
// 2. A client whose handshake has not ended after handshake_timeout is closed.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "common/runtime/runtime.h"
#include "common/tls/edge_stream_asio.h"
#include "common/tls/tls_counters.h"
#include "common/tls_context.h"

namespace quire {

class TlsHandshake final : public std::enable_shared_from_this<TlsHandshake> {
 public:
  using Socket = EdgeStream::Socket;
  struct Options {
    TlsContext context;
    Micros timeout = 10 * kMicrosPerSecond;
    Executor& executor;
    TlsCounters counters;
    Background* pool = nullptr;  // where steps are computed; nullptr: on the event loop
  };
  // Called once, and not from inside Start: nullopt when there is no connection.
  using Done = std::function<void(std::optional<EdgeStream> stream)>;

  TlsHandshake(Socket client, Options options, Done done);
  ~TlsHandshake();

  void Start();
  void Close();
  // It is the client's turn.
  bool awaits_client() const { return !stepping_; }

 private:
  enum class Need { kNothing, kRead, kWrite, kFailed };

  static Need NeedOf(const ssl_st* ssl, int result);
  void Step();
  void Stepped(Need need);
  void Await(Need need);
  void End(std::optional<EdgeStream> stream);

  const Options options_;
  Done done_;
  Socket client_;
  EdgeStream::Ssl ssl_;
  bool closed_ = false;
  bool stepping_ = false;  // with the pool
  TimerId timer_ = 0;
};

}  // namespace quire
