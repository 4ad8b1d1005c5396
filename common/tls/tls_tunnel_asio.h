// One TLS connection of a client: shakes hands, then carries its bytes, in the clear, to and from a
// socket pair. What lies behind reads from its end of the pair as it would from a plain connection.
//
// Owner: its own pending socket operations (a shared_ptr in each); TlsTunnels keeps one too, to
// close it. Event loop only.
//
// Invariants:
// 1. No byte of a client goes inwards before the handshake has ended.
// 2. At most one read's worth of bytes waits in each direction, beside the pair's small buffers: a
// slow side slows the other down.
// 3. Each step of a handshake, which costs a signature of milliseconds, runs on a thread of the
// pool that is given for it; while one does, nothing else touches the connection but its closing,
// which waits for it.
// 4. A client that takes nothing for write_timeout is given up, and so is one that stays
// linger_timeout after what lies behind has ended.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/system/error_code.hpp>

#include <functional>
#include <memory>
#include <string>

#include "common/runtime/runtime.h"
#include "common/tls/tls_counters.h"
#include "common/tls/tls_guard.h"
#include "common/tls_context.h"

struct ssl_st;

namespace quire {

struct TlsTimeouts {
  Micros handshake = 10 * kMicrosPerSecond;
  Micros write = 30 * kMicrosPerSecond;
  Micros linger = 5 * kMicrosPerSecond;
};

class TlsTunnel final : public std::enable_shared_from_this<TlsTunnel> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  struct Options {
    TlsContext context;
    TlsTimeouts timeouts;
    Executor& executor;
    TlsCounters counters;
    Background* handshakes = nullptr;  // nullptr: on the event loop
  };
  struct Events {
    // The handshake has ended, the tunnel carries bytes: the near end is whose reads are the
    // client's words. At most once, and not from inside Start.
    std::function<void(Socket near)> on_open;
    std::function<void()> on_closed;  // once; the tunnel may be let go
  };

  TlsTunnel(Socket client, Options options, Events events);
  ~TlsTunnel();

  void Start();
  void Close();
  // Its handshake is the client's turn.
  bool awaits_client() const { return !opened_ && !shaking_; }

 private:
  enum class Need { kNothing, kRead, kWrite, kFailed };

  static Need NeedOf(const ssl_st* ssl, int result);
  void Handshake();
  void HandshakeStepped(Need need);
  bool Open();
  // Each moves what it can, then waits; false: closed.
  bool PumpIn();
  bool PumpOut();
  void Pump();
  void PumpLater();
  bool Spent();  // closed: it sent too much that says nothing
  void InnerEnded();
  void Await(Socket& socket, bool for_read, bool& waiting);
  void AwaitClient(Need need);
  void SetDeadline(Micros delay);  // 0: none

  const Options options_;
  Events events_;
  Socket client_;
  Socket inner_;
  TlsGuard guard_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  std::string to_inner_, to_client_;
  size_t inner_offset_ = 0, client_offset_ = 0;
  bool client_ended_ = false, inner_ended_ = false;
  bool client_reads_ = false, client_writes_ = false;  // waits under way
  bool inner_reads_ = false, inner_writes_ = false;
  bool opened_ = false;
  bool closed_ = false;
  bool shaking_ = false;  // a step of the handshake is with the pool
  bool posted_ = false;   // a Pump waits for its turn
  bool stalled_ = false;  // the client takes nothing, its deadline runs
  TimerId timer_ = 0;
};

}  // namespace quire
