// The worker's gRPC port: Attach streams, the text bundle, health and reflection, on the hub's
// event loop.
//
// Owner: main. Its limits are below and in LimitsOfPort (server_asio.cc); the others are in
// common/grpc/host.h.
//  1. At most kMaxRouterConnections are open, at most kMaxRouterHandshakes are in a handshake; one
//     more is closed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "worker/rpc/router_memory.h"
#include "worker/rpc/rpc_metrics.h"
#include "worker/rpc/server_tls.h"

namespace boost::asio {
class io_context;
}

namespace quire {

inline constexpr size_t kMaxRouterConnections = 1024;
inline constexpr size_t kMaxRouterHandshakes =
    64;  // then a connection with a slow handshake is closed

// Everything that is pointed to outlives the server.
struct WorkerServerOptions {
  std::string host = "127.0.0.1";                      // an IP address
  int port = 0;                                        // 0 lets the system choose
  std::string model_id;                                // of the bundle
  std::string text_bundle;                             // served by GetTextBundle
  std::optional<ServerTlsOptions> tls = std::nullopt;  // none: in the clear
  size_t max_connections = kMaxRouterConnections;
  boost::asio::io_context* context = nullptr;
  Executor* executor = nullptr;      // runs on the context
  Background* background = nullptr;  // for handshakes, files and compressed messages
  RpcMetrics* metrics = nullptr;
  // What the worker holds for all routers; each connection may use RouterConnectionBytes of it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(kLeastRouterMemory);
  Logger* log = nullptr;
  // On the executor, for every Attach that a router opens.
  std::function<void(std::unique_ptr<FrameStream>)> accept;
};

class WorkerServer {
 public:
  // After Shutdown, or on a thread beside which the executor does not run.
  virtual ~WorkerServer() = default;
  virtual int port() const = 0;
  // The answer of grpc.health.v1 from now on, for "" and for the Worker service. Any thread, before
  // Shutdown.
  virtual void SetServing(bool serving) = 0;
  // Asks clients to open no more calls, gives running ones two seconds to end, and waits for that.
  // Do not call it on the executor, which runs meanwhile. Idempotent.
  virtual void Shutdown() = 0;
};

// UNAVAILABLE or INVALID_ARGUMENT, which name the flags, when it cannot listen on the address, or
// cannot use the files of TLS. Nothing is accepted before the executor runs.
absl::StatusOr<std::unique_ptr<WorkerServer>> StartWorkerServer(WorkerServerOptions options);

}  // namespace quire
