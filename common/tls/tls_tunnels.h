// The TLS connections of one port: handshakes at most so many at once, then tunnels, until their
// clients or what lies behind them end.
//
// Owner: who accepts connections; event loop only.
//  1. Whoever keeps a handshake waiting gives way to who comes: an honest client answers within its
//     round trip. Those that are being computed do not, or a flood of them would finish none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "common/tls/tls_tunnel_asio.h"

namespace quire {

class TlsTunnels {
 public:
  using Number = uint64_t;  // of a tunnel; 0 is none
  struct Events {
    // As TlsTunnel's: `near` is whose reads are the client's words.
    std::function<void(Number number, TlsTunnel::Socket near)> on_open;
    std::function<void(Number number)> on_closed;
  };

  TlsTunnels(TlsTunnel::Options options, size_t max_handshakes, Counter& evicted, Events events);
  ~TlsTunnels() { CloseAll(); }

  // 0: there is no room, the client is closed, and nothing is told.
  Number Begin(TlsTunnel::Socket client, TlsContext context);
  void CloseAll();

 private:
  bool MakeRoom();

  const TlsTunnel::Options options_;  // but for the context
  const size_t max_handshakes_;
  Counter& evicted_;
  const Events events_;
  std::map<Number, std::shared_ptr<TlsTunnel>> tunnels_;
  std::set<Number> handshakes_;  // under way, the oldest first
  Number last_ = 0;
};

}  // namespace quire
