// The certificate that the edge shows, exchanged while connections go on.
//
// Owner: main; event loop only. A connection keeps the context that it began with.
//
// Invariants:
// 1. What is shown is a chain whose first certificate fits the private key.
// 2. Files that cannot be read, or do not fit each other, change nothing: the last good ones are
// shown. Neither a log line nor an error holds a key.
// 3. TLS 1.2 and later. ALPN takes what the port is for where a client offers both: h2 carries gRPC
// alone here, and a client of the HTTP API that offers both would speak it to no route.
#pragma once

#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/runtime/watched_files.h"
#include "common/tls_context.h"
#include "router/core/edge_metrics.h"

namespace quire {

// One certificate, for ports that take http/1.1 where both are offered, and for those that take h2.
struct EdgeContexts {
  TlsContext http1_first;
  TlsContext http2_first;
};

// From PEM: the certificate with those that vouch for it after it, and its private key.
// INVALID_ARGUMENT says which of both is wrong.
absl::StatusOr<EdgeContexts> MakeEdgeContexts(const std::string& certificates,
                                              const std::string& key);

class TlsIdentity {
 public:
  TlsIdentity(EdgeContexts contexts, EdgeMetrics& counters, Logger& log);

  // Reads certificate and key, in this order, from now on.
  void Watch(const WatchedFiles::World& world, WatchedFilesOptions options, FileContents known);
  const TlsContext& current(bool http2_first) const {
    return http2_first ? contexts_.http2_first : contexts_.http1_first;
  }

 private:
  void OnRead(absl::StatusOr<FileContents> contents);

  EdgeContexts contexts_;
  EdgeMetrics& counters_;
  Logger& log_;
  std::string path_;  // of the certificate, for the log
  std::unique_ptr<WatchedFiles> watch_;
};

}  // namespace quire
