// The certificate that the edge shows, replaced without closing connections.
//
// Owner: main; event loop only. A connection keeps the context that it began with.
//
// Invariants:
// 1. What is shown is a chain whose first certificate fits the private key.
// 2. Files that cannot be read, or do not fit each other, change nothing: the last good ones stay
//    in use. No log line and no error contains a key.
// 3. TLS 1.2 and later. Where a client offers both protocols, ALPN picks the one that the port
//    serves: h2 carries only gRPC here, so a client of the HTTP API that offers both would find no
//    route over h2.
#pragma once

#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/runtime/watched_files.h"
#include "common/tls_context.h"
#include "router/core/edge_metrics.h"

namespace quire {

// One certificate, for ports that pick http/1.1 where both are offered, and for those that pick h2.
struct EdgeContexts {
  TlsContext http1_first;
  TlsContext http2_first;
};

// From PEM: the certificate followed by its chain, and its private key. INVALID_ARGUMENT says which
// of the two is wrong.
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
