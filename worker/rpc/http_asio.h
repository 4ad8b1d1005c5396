// The plain HTTP port for probes and metrics: GET /livez, /readyz, /health, /metrics, /version.
//
// Owner: main. It has its own thread and reads only atomics, so that it answers under any load.
// Bounded: kMaxHttpConnections, beyond which the connection that has waited longest for its client
// is closed for the new one; kMaxHttpHeaderBytes, no bodies, kHttpTimeoutSeconds per request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/metrics/metrics.h"
#include "common/status.h"
#include "worker/rpc/health.h"

namespace quire {

inline constexpr int kMaxHttpConnections = 64;
inline constexpr int kMaxHttpHeaderBytes = 8192;
inline constexpr int kHttpTimeoutSeconds = 10;

struct HttpServerOptions {
  std::string host;                // an IP address
  int port = 0;                    // 0 lets the system choose
  const Health* health = nullptr;  // all three outlive the server
  const Metrics* metrics = nullptr;
  std::string version_json;    // the answer to /version
  Counter* evicted = nullptr;  // counts connections closed for new ones, where it is given
};

class ProbeServer {
 public:
  virtual ~ProbeServer() = default;  // stops
  virtual int port() const = 0;
};

// UNAVAILABLE or INVALID_ARGUMENT when the server cannot listen on the address.
absl::StatusOr<std::unique_ptr<ProbeServer>> StartHttpServer(const HttpServerOptions& options);

// The same errors without listening: checks whether a server that starts later could listen.
absl::Status CheckAddressFree(const std::string& host, int port);

}  // namespace quire
