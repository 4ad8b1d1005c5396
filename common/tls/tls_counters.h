// What the TLS connections of one port count.
#pragma once

#include "common/metrics/metrics.h"

namespace quire {

// All outlive the tunnels.
struct TlsCounters {
  Counter& handshakes;           // that ended well
  Counter& handshake_failures;   // broken, or too slow
  Counter& handshakes_refused;   // to a full queue
  Counter& write_timeouts;       // the client took nothing for too long
  Counter& connections_refused;  // there was no descriptor left
  Counter& idle_records;         // connections that sent too many records without a byte
};

}  // namespace quire
