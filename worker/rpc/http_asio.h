// The plain HTTP port for probes and metrics: GET /livez, /readyz, /health, /metrics, /version.
//
// Owner: main. It has a thread of its own and reads atomics only, so that it answers under any
// load. Bounded: kMaxHttpConnections, beyond which the one that has waited longest for its client
// gives way to who comes; kMaxHttpHeaderBytes, no bodies, kHttpTimeoutSeconds per request.
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
  Counter* evicted = nullptr;  // counts connections that gave way, where it is given
};

class ProbeServer {
 public:
  virtual ~ProbeServer() = default;  // stops
  virtual int port() const = 0;
};

// UNAVAILABLE or INVALID_ARGUMENT when the address cannot be listened on.
absl::StatusOr<std::unique_ptr<ProbeServer>> StartHttpServer(const HttpServerOptions& options);

// The same errors without listening: whether a server that starts later could, as things stand now.
absl::Status CheckAddressFree(const std::string& host, int port);

}  // namespace quire
