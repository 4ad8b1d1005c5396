// The router's gRPC: the services on the connections that the front passes on.
//
// Owner: main; event loop only. It has no listening socket (common/grpc/server.h).
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "common/grpc/server.h"
#include "common/runtime/timer.h"
#include "router/grpc/services.h"

namespace quire {

class InferenceServer {
 public:
  // quire.v1.Inference, health and reflection are served.
  explicit InferenceServer(GrpcServices& services);

  // What is served; more may be added before the first connection.
  GrpcMethods& methods() { return server_.methods(); }
  // As GrpcServer's.
  void Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
             std::shared_ptr<ClientSeat> seat) {
    server_.Adopt(std::move(stream), std::move(first_bytes), std::move(on_closed), std::move(seat));
  }
  // Health says NOT_SERVING from now on.
  void StartDraining();
  // Asks clients to open no more calls here; running ones have `grace` to end. `done` runs when no
  // connection is left.
  void Shutdown(Micros grace, std::function<void()> done);
  // Ends the calls that Shutdown waits for.
  void CancelCalls();

 private:
  void RefreshHealth();
  static absl::Status ShutDown();

  GrpcServices& services_;
  GrpcServer server_;
  Timer health_timer_{services_.executor};
};

}  // namespace quire
