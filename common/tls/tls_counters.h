// What the TLS connections of one port count.
#pragma once

#include "common/metrics/metrics.h"

namespace quire {

// All outlive the connections.
struct TlsCounters {
  Counter& handshakes;          // that ended well
  Counter& handshake_failures;  // broken, or too slow
  Counter& handshakes_refused;  // to a full queue
  Counter& idle_records;        // connections that sent too many records without a byte
};

}  // namespace quire
