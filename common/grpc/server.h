// A gRPC server over the connections that it gets, and the methods that it serves on them.
//
// Owner: the owner of the listening socket; event loop only.
//
// Invariants:
// 1. It does not listen: connections come through Adopt, each with the bytes that were read from
//    it.
// 2. Health and reflection describe the services that are served.
// 3. Once Shutdown has reported that it is done, no connection is left.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/grpc/health.h"
#include "common/grpc/host.h"
#include "common/grpc/methods.h"
#include "common/tls/edge_stream_asio.h"

namespace quire {

class GrpcServer {
 public:
  // Health, not serving at first, and reflection are served.
  explicit GrpcServer(GrpcHost host);
  ~GrpcServer();  // closes all connections

  // The methods; more may be added before the first connection.
  GrpcMethods& methods();
  HealthService& health();

  // Takes over a connection on which a client's HTTP/2 arrives, whose `first_bytes` were read.
  // `on_closed` runs once, when the connection has ended, and never from inside Adopt. Closed at
  // once: there is no memory for it.
  void Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
             std::shared_ptr<ClientSeat> seat = std::make_shared<ClientSeat>());
  size_t connections() const;
  // Asks clients to open no more calls here; running ones have `grace` to end, after which their
  // status is `why`. `done` runs when no connection is left.
  void Shutdown(Micros grace, absl::Status why, std::function<void()> done);
  // Ends the calls under way, and their connections.
  void CancelCalls(const absl::Status& why);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
