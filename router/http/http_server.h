// HTTP/1.1 connections of the router: reads requests, dispatches them, writes what comes back.
//
// Owner: router/front, which accepts the connections; event loop only.
//
// Invariants:
// 1. One request of a connection is answered at a time; what follows it waits, bounded, in the read
// buffer.
// 2. Reading goes on while an answer is under way, so that a client that goes away is seen at once;
// its
//    Call is destroyed then.
// 3. Every state of a connection but "answering, and the client takes bytes" has a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/client_seat.h"
#include "common/tls/edge_stream_asio.h"
#include "router/http/services.h"

namespace quire {

class HttpServer {
 public:
  explicit HttpServer(HttpServices& services);
  ~HttpServer();  // closes all connections

  // Takes over a connection, of which `first_bytes` were read already. `on_closed` runs once, when
  // it has ended, and never from inside Adopt.
  void Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
             std::shared_ptr<ClientSeat> seat = std::make_shared<ClientSeat>());

  // Idle connections close now, others after the answer that they are in.
  void StartDraining();
  size_t connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
