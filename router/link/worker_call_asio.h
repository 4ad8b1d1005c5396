// One gRPC call to a worker, with its own connection, on the event loop: dials, sends the request's
// headers, then carries whole messages both ways until the worker's status comes.
//
// Owner: a FrameStream or a bundle's fetch, and its own pending operations (a shared_ptr in each).
// Event loop only.
//  1. A worker's bytes are hostile input: headers, messages and frames are bounded, and a violation
//     ends the call.
//  2. What has been read is passed on at once; a busy loop reads no further, and the windows bound
//     what the worker can have under way.
//  3. A call whose bytes leave too slowly for kWriteBlockedTurns ends, and so does one whose worker
//     answers no ping. Both are counted in turns of a timer, once there is a connection, so that a
//     late loop is not mistaken for a late worker.
//  4. The receiver gets the end once, and nothing after the end or after Cancel. No callback comes
//     from inside a call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/blocked_write.h"
#include "common/http2/grpc_framing.h"
#include "common/http2/session.h"
#include "router/link/worker_socket_asio.h"

namespace quire {

inline constexpr size_t kMaxPendingWriteBytes = 4u << 20;
inline constexpr Micros kTurn = kMicrosPerSecond;
inline constexpr size_t kLinkReadBytes = 64u << 10;
inline constexpr uint32_t kLinkWindowBytes = 2u << 20;
inline constexpr uint32_t kMaxLinkHeaderBytes = 16u << 10;
inline constexpr size_t kMaxLinkDecodedBytes = 256u << 10;  // of all headers of a call, decoded
// A worker that has sent nothing for this long gets a ping, at most two while nothing is sent to
// it: gRPC's servers end the connections of clients that send more.
inline constexpr int kLinkPingAfterTurns = 20;
inline constexpr int kLinkPingTimeoutTurns = 10;
inline constexpr int kMaxPingsWithoutData = 2;

// What the calls of one dialer share; outlives them.
struct WorkerCallWorld {
  AsioExecutor& executor;
  std::unique_ptr<Resolver> resolver;
  Micros turn = kTurn;
  WorkerTlsContext tls = {};
  std::string read_buffer = std::string(kLinkReadBytes, '\0');  // of the call that reads
};

struct WorkerCallOptions {
  std::string target;  // HOST:PORT
  std::string path;    // "/package.Service/Method"
  size_t max_message_bytes = 0;
  Micros timeout = 0;              // of the whole call; 0: none
  const WorkerTls* tls = nullptr;  // used only during the call that makes it; nullptr: in the clear
};

class WorkerCall final : public std::enable_shared_from_this<WorkerCall>,
                         private http2::Handler,
                         private WorkerSocket::Events {
 public:
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual void OnMessage(std::string_view message) = 0;
    virtual void OnEnd(const absl::Status& status) = 0;
    virtual void OnWritable() {}
  };

  WorkerCall(std::shared_ptr<WorkerCallWorld> world, const WorkerCallOptions& options);

  void Start(Receiver& receiver);  // once
  // After Start. False: more waits than kMaxPendingWriteBytes; OnWritable reports when it has
  // halved.
  bool Write(std::string_view message);
  size_t PendingBytes() const;
  void EndWriting();  // after what was written
  void Cancel();

 private:
  // http2::Handler
  void OnHeaders(http2::StreamId stream, const http2::HeaderBlock& block) override;
  void OnData(http2::StreamId stream, std::string_view bytes) override;
  void OnEnd(http2::StreamId stream) override;
  void OnClosed(http2::StreamId stream, http2::ErrorCode code) override;
  bool OnDecoded(size_t bytes) override { return (decoded_ += bytes) <= kMaxLinkDecodedBytes; }
  // WorkerSocket::Events
  void OnConnected() override;
  void OnNotConnected(const absl::Status& why) override;
  void OnReady() override;

  void FlushLater();
  void Flush();
  bool FillOut();
  void Read();
  bool TakeBytes(std::string_view bytes);
  void WatchLater();
  void WatchWrites();
  void WatchReads();
  void TellWritable();
  // The first error counts; it is reported once no code of the session runs below.
  void EndWith(const absl::Status& status);
  void Settle();
  void SayGoodbye();

  const std::shared_ptr<WorkerCallWorld> world_;
  const std::shared_ptr<WorkerSocket> socket_;
  http2::Session session_;
  http2::MessageReader reader_;
  http2::StreamId stream_ = 0;
  Receiver* receiver_ = nullptr;  // nullptr: before Start, and once nothing is to be reported
  const std::string target_;
  TlsConnection tls_{nullptr, nullptr};  // until Start
  const bool in_clear_;
  absl::Status begin_;  // why the call cannot begin at all

  std::string out_;  // framed and not yet written, after out_offset_
  size_t out_offset_ = 0;
  size_t left_ = 0;  // bytes that were written since the last turn that counted them
  bool connected_ = false;
  bool flush_posted_ = false;
  bool in_session_ = false;  // whose callbacks may come
  bool wants_writable_ = false;
  bool ended_ = false;
  bool settled_ = false;
  bool has_read_ = false;  // since the last turn
  absl::Status status_;    // once ended_
  std::optional<absl::Status> trailers_;
  int http_status_ = 0;
  size_t decoded_ = 0;  // bytes of headers
  TimerId watch_ = 0;
  Micros deadline_ = 0;  // 0: none
  int blocked_turns_ = 0;
  int silent_turns_ = 0;
  int pings_without_data_ = 0;
  bool pinged_ = false;
};

}  // namespace quire
