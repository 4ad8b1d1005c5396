// The counters of the worker's side of the wire, and their names for Prometheus.
//
// Owner: main. Written on the rpc executor.
#pragma once

#include <array>

#include "common/grpc/host.h"
#include "common/metrics/metrics.h"
#include "common/tls/tls_counters.h"
#include "common/wire/values.h"
#include "worker/rpc/server_tls.h"

namespace quire {

struct RpcMetrics {
  explicit RpcMetrics(Metrics& metrics);

  Counter& frames_received;
  Counter& frames_sent;
  Counter& bytes_sent;
  Counter& attaches;
  Counter& attaches_refused;
  Counter& attaches_fenced;
  Counter& routers_lost;
  Counter& protocol_errors;
  Counter& stale_words;        // about attempts of an older Attach
  Counter& unsent_limit_hits;  // an Attach ended because its router read too slowly
  Counter& events_dropped;
  Gauge& routers_attached;
  std::array<Counter*, 11> refusals;  // by RefusalCode
  // Of the port.
  Counter& connections_refused;  // over kMaxRouterConnections
  GrpcCounters grpc;
  TlsCounters tls;
  Counter& tls_handshakes_evicted;  // connections with a handshake under way, closed for new ones
  ServerTls::Counters tls_files;
};

}  // namespace quire
