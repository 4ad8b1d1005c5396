// HTTP/1.1 connections of the router: reads requests, dispatches them, writes the answers.
//
// Owner: router/front, which accepts the connections; event loop only.
//
// Invariants:
// 1. Requests of a connection are answered one at a time; the next ones wait, bounded, in the read
//    buffer.
// 2. Reading continues while an answer is under way, so that a client that goes away is seen at
//    once; its Call is destroyed then.
// 3. Every state of a connection has a deadline, except "answering, and the client takes bytes".
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

  // Takes over a connection whose `first_bytes` were read already. `on_closed` runs once, when the
  // connection has ended, and never from inside Adopt.
  void Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
             std::shared_ptr<ClientSeat> seat = std::make_shared<ClientSeat>());

  // Idle connections close now, others after their current answer.
  void StartDraining();
  size_t connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
