// The certificate that a worker shows to routers, and the routers that it accepts, replaced without
// closing connections.
//
// Owner: the port; event loop only. A connection keeps the context that it began with.
//  1. A peer must show a certificate that one of the authorities signed and that has one of the
//     routers' names, whatever its address; a certificate that is for servers alone (extended key
//     usage) is refused.
//  2. Files that cannot be read, or do not fit each other, change nothing: the last good ones stay
//     in use.
//  3. TLS 1.2 and later; HTTP/2 must be among what ALPN offers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/pem.h"
#include "common/runtime/watched_files.h"
#include "common/tls_context.h"
#include "worker/rpc/router_names.h"

namespace quire {

// They are read again every second.
struct ServerTlsFiles {
  std::string certificate;
  std::string key;
  std::string authorities;  // authorities that may sign routers' certificates
};

struct ServerTlsOptions {
  ServerTlsFiles files;
  std::vector<std::string> router_names;  // alternative names; a router's certificate has one
};

// INVALID_ARGUMENT: files that cannot be used.
absl::StatusOr<TlsContext> MakeServerContext(const MutualTlsPem& pem,
                                             std::shared_ptr<RouterNames> names);

class ServerTls {
 public:
  // Outlive it.
  struct Counters {
    Counter& reloads;
    Counter& reload_failures;
    Counter& names_refused;
  };
  // Reads the files at once; fails if they cannot be used.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Read(const ServerTlsOptions& options,
                                                         Counters counters, Logger& log);
  // Reads them again from now on.
  void Watch(Executor& executor, Background& background);
  const TlsContext& current() const { return context_; }

 private:
  ServerTls(const ServerTlsOptions& options, Counters counters, Logger& log);
  absl::Status Use(const FileContents& contents);
  void OnRead(const absl::StatusOr<FileContents>& contents);

  const WatchedFilesOptions options_;
  const std::vector<std::string> router_names_;
  const Counters counters_;
  Logger& log_;
  FileContents known_;
  TlsContext context_;
  std::unique_ptr<WatchedFiles> watch_;
};

}  // namespace quire
