// The router's gRPC: what is served on the connections that the front hands over.
//
// Owner: main; event loop only. It listens nowhere (common/grpc/server.h).
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
  // Clients are told to open no more calls here; those under way have `grace` to end. `done` runs
  // when no connection is left.
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
