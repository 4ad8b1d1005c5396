// The counters of the TLS connections of one port.
#pragma once

#include "common/metrics/metrics.h"

namespace quire {

// All of them outlive the connections.
struct TlsCounters {
  Counter& handshakes;          // handshakes that succeeded
  Counter& handshake_failures;  // handshakes that were broken, or too slow
  Counter& handshakes_refused;  // refused because the queue was full
  Counter& idle_records;        // connections that sent too many records without a byte
};

}  // namespace quire
