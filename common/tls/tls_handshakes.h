// The TLS handshakes of one port: at most so many at once.
//
// Owner: the code that accepts connections; event loop only.
//  1. A new connection replaces the one that keeps its handshake waiting longest: an honest client
//     answers within its round trip. Handshakes that are being computed are not replaced, or a
//     flood of them would finish none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "common/tls/tls_handshake_asio.h"

namespace quire {

class TlsHandshakes {
 public:
  // `options` without the context.
  TlsHandshakes(TlsHandshake::Options options, size_t max_handshakes, Counter& evicted);
  ~TlsHandshakes() { CloseAll(); }

  // `done` as in TlsHandshake. False: there is no room, the client is closed, and nothing is
  // called.
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
