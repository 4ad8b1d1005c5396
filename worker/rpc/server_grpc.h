// The worker's gRPC port: Attach streams handed to the rpc executor, the text bundle, health and
// reflection.
//
// Owner: main. Start and Shutdown on main's threads; everything about an Attach happens on the
// executor, gRPC's own threads only post to it. All limits are explicit (server_grpc.cc).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/runtime/runtime.h"
#include "common/status.h"

namespace quire {

// Files of a server on whose connections both sides show a certificate. They are read again every
// second; connections that stand keep what they began with.
struct ServerTlsFiles {
  std::string certificate;
  std::string key;
  std::string authorities;  // who may vouch for routers
};

struct GrpcServerOptions {
  std::string listen;                                // HOST:PORT; port 0 lets the system choose
  std::string model_id;                              // of the bundle
  std::string text_bundle;                           // served by GetTextBundle
  std::optional<ServerTlsFiles> tls = std::nullopt;  // none: in the clear
  Executor* executor = nullptr;  // outlives the server, runs until Shutdown has returned
  // On the executor, for every Attach that a router opens.
  std::function<void(std::unique_ptr<FrameStream>)> accept;
};

class GrpcServer {
 public:
  virtual ~GrpcServer() = default;
  virtual int port() const = 0;
  // What grpc.health.v1 answers from now on, for "" and for the Worker service. Any thread.
  virtual void SetServing(bool serving) = 0;
  // Refuses new calls, cancels what is open, and waits for both. Not on the executor. Idempotent.
  virtual void Shutdown() = 0;
};

// UNAVAILABLE when the address cannot be listened on.
absl::StatusOr<std::unique_ptr<GrpcServer>> StartGrpcServer(GrpcServerOptions options);

}  // namespace quire
