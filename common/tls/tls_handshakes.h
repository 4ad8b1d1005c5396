// The TLS handshakes of one port: at most so many at once.
//
// Owner: who accepts connections; event loop only.
//  1. Whoever keeps a handshake waiting gives way to who comes: an honest client answers within its
//     round trip. Those that are being computed do not, or a flood of them would finish none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "common/tls/tls_handshake_asio.h"

namespace quire {

class TlsHandshakes {
 public:
  // `options` but for the context.
  TlsHandshakes(TlsHandshake::Options options, size_t max_handshakes, Counter& evicted);
  ~TlsHandshakes() { CloseAll(); }

  // `done` as TlsHandshake's. False: there is no room, the client is closed, and nothing is told.
  bool Begin(TlsHandshake::Socket client, TlsContext context, TlsHandshake::Done done);
  void CloseAll();

 private:
  bool MakeRoom();

  const TlsHandshake::Options options_;
  const size_t max_handshakes_;
  Counter& evicted_;
  std::map<uint64_t, std::shared_ptr<TlsHandshake>> under_way_;  // the oldest first
  uint64_t last_ = 0;
};

}  // namespace quire
