// The socket of one GrpcConnection: reads what the client sends, and passes the connection's output
// to the system at the end of a turn of the loop.
//
// Owner: the server's table, and its own pending socket operations (a shared_ptr in each); event
// loop only.
//
// Invariants:
// 1. At most kMaxOutBytes, and a frame, wait here for the system; the rest stays with the calls,
//    which notice that the client is slow. Waiting bytes count in the connection's account.
// 2. Once the connection is over, the client's further bytes are read and dropped, for
//    linger_timeout and max_linger_bytes at most.
// 3. A closed socket calls nothing back except on_closed, once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/grpc/connection.h"
#include "common/runtime/timer.h"
#include "common/tls/edge_stream_asio.h"

namespace quire {

class GrpcSocket final : public GrpcConnection::Transport,
                         public std::enable_shared_from_this<GrpcSocket> {
 public:
  GrpcSocket(EdgeStream stream, GrpcHost& host, const GrpcMethods& methods,
             std::shared_ptr<ClientSeat> seat, std::function<void()> on_closed);
  ~GrpcSocket() override;

  void Start(std::string_view first_bytes);
  void Leave() { connection_.Leave(); }
  void CancelCalls(const absl::Status& status);
  void Close();

  void WantsToSend() override;
  void GiveUp() override { Close(); }
  void ReadOn() override { Read(); }

 private:
  void Read();
  void OnReadable(const EdgeStream::Error& error);
  void Flush();
  bool Write();  // false: the system takes no more now, or the socket is closed
  void AwaitRoom();
  void CloseIfOver();
  void Linger();

  EdgeStream stream_;
  GrpcHost& host_;
  const std::shared_ptr<ClientSeat> seat_;
  std::function<void()> on_closed_;
  GrpcConnection connection_;
  MemoryHold out_memory_;  // of out_, while it waits
  std::string out_;
  size_t written_ = 0;    // of out_
  bool reading_ = false;  // waits for bytes
  bool awaiting_room_ = false;
  bool lingering_ = false;
  size_t lingered_bytes_ = 0;
  Timer linger_timer_{host_.executor};
  bool closed_ = false;
};

}  // namespace quire
