// The gRPC server: connections that the front hands over, and the methods that are served on them.
//
// Owner: main; event loop only.
//
// Invariants:
// 1. It listens nowhere: connections come by Adopt, each with the bytes that were read from it.
// 2. Health and reflection tell of the services that are served.
// 3. Once Shutdown has said that it is done, no connection is left.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "router/grpc/methods.h"
#include "router/grpc/services.h"

namespace boost::asio {
class io_context;
}

namespace quire {

class InferenceServer {
 public:
  // quire.v1.Inference, health and reflection are served.
  InferenceServer(boost::asio::io_context& context, GrpcServices& services);
  ~InferenceServer();  // closes all connections

  // What is served; more may be added before the first connection.
  GrpcMethods& methods();

  // Takes over a connected socket on which a client's HTTP/2 arrives. `on_closed` runs once, when
  // the connection has ended, and never from inside Adopt.
  void Adopt(int fd, std::string first_bytes, std::function<void()> on_closed);
  // Health says NOT_SERVING from now on.
  void StartDraining();
  // Clients are told to open no more calls here; those under way have `grace` to end. `done` runs
  // when no connection is left.
  void Shutdown(Micros grace, std::function<void()> done);
  // Ends the calls that Shutdown waits for.
  void CancelCalls();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
