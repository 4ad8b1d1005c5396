// Carries the bytes of one HTTP/2 connection between its client and gRPC, past the guard.
//
// Owner: its own pending socket operations (a shared_ptr in each); the front keeps a weak reference
// to close it. Event loop only.
//
// Invariants:
// 1. At most one read's worth of bytes waits in each direction: a slow side slows the other down.
// 2. A connection that abandons streams is read from only as fast as gRPC can be trusted to free
// them.
// 3. After a verdict of the guard no further byte reaches gRPC.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/system/error_code.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/log/log.h"
#include "router/core/edge_metrics.h"
#include "router/front/http2_guard.h"

namespace quire {

class Http2Pump final : public std::enable_shared_from_this<Http2Pump> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  struct Options {
    GuardLimits limits;
    RateBucket& abandoned;  // of all connections together
    Executor& executor;
    EdgeMetrics& counters;
    Logger& log;
  };

  Http2Pump(Socket client, Socket inner, const Options& options, std::function<void()> on_closed);

  // `first_bytes` were read from the client already.
  void Start(std::string first_bytes);
  void Close();

 private:
  struct Direction {
    Socket& from;
    Socket& to;
    bool inspected;
    std::string pending;
    size_t offset = 0;
    bool ended = false;
  };

  void Step(Direction& direction);
  bool Flush(Direction& direction);                            // false: waits or closed
  bool Forward(Direction& direction, std::string_view bytes);  // false: closed
  bool Fill(Direction& direction);                             // false: waits, ended or closed
  bool Inspect(std::string_view bytes);
  // True: too many streams were abandoned, here too; reading goes on by itself later.
  bool Paused();
  void CountFinished(std::string_view bytes);
  void DebitOpenStreams();
  void Wait(Direction& direction, Socket& socket, bool for_read);

  Socket client_;
  Socket inner_;
  Executor& executor_;
  RateBucket& abandoned_;
  EdgeMetrics& counters_;
  Logger& log_;
  const uint32_t max_streams_;
  Http2Guard guard_;
  std::function<void()> on_closed_;
  Direction to_grpc_;
  Direction to_client_;
  Http2Frames answers_;
  uint64_t streams_finished_ = 0;  // by gRPC
  uint64_t resets_debited_ = 0;
  uint64_t messages_too_large_ = 0;  // of the guard's, that are counted
  bool open_debited_ = false;        // the streams that were open when the client ended
  bool suspect_ = false;  // has abandoned streams, or came while too many were being abandoned
  TimerId pause_timer_ = 0;
  bool closed_ = false;
};

}  // namespace quire
