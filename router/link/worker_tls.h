// The certificate that a router shows to workers, and what it requires of theirs.
//
// Event loop only.
//  1. Both sides show certificates. A worker's certificate must have a given name, wherever the
//     worker is dialled: an address does not identify a worker. A certificate that is for clients
//     alone (extended key usage) is refused.
//  2. TLS 1.2 and later; HTTP/2 must be chosen by ALPN.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/pem.h"
#include "common/tls_context.h"

struct ssl_st;

namespace quire {

struct WorkerTls {
  MutualTlsPem pem;
  std::string name;  // a subject alternative name of the worker's certificate
};
// The settings for the next dial; nullptr: in the clear. Called on the event loop.
using CurrentWorkerTls = std::function<const WorkerTls*()>;

using TlsConnection = std::unique_ptr<ssl_st, void (*)(ssl_st*)>;

// Made again only when the files have changed.
class WorkerTlsContext {
 public:
  // For one dial, before its handshake. INVALID_ARGUMENT: files that cannot be used.
  absl::StatusOr<TlsConnection> NewConnection(const WorkerTls& tls);

 private:
  absl::Status Make(const MutualTlsPem& pem);

  MutualTlsPem made_of_;
  TlsContext context_;
};

// After the handshake, or its failure: why the connection is not to be used; OK after success.
absl::Status HandshakeStatus(const ssl_st* connection, bool succeeded);

}  // namespace quire
