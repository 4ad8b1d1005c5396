// The responses of one ModelStreamInfer on their way to gRPC, one write at a time: who adds them is
// the event loop, who has written one and starts the next is a thread of gRPC's.
//
// Owner: a StreamCall. Any thread, but for what is said of a function.
//  1. At most one write is under way; the reactor is told to finish exactly once, after the last
//     one, and only once End has said how. It is not touched after that.
//  2. A response is handed on without a flush when another waits behind it.
//  3. Answers that wait are bounded by the windows of their requests, errors by StreamCall, which
//     stops reading while `waiting()` is above its limit.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "common/sync.h"
#include "inference/open_inference.pb.h"

namespace quire::oip {

class StreamWriter {
 public:
  using Reactor =
      grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>;

  struct Message {
    inference::ModelStreamInferResponse response;
    uint64_t part = 0;              // whose it is
    std::optional<uint64_t> taken;  // its outputs below this are in the client's hands then
  };
  // What a write that has ended means for the event loop.
  struct News {
    bool broken = false;   // the client is gone; nothing more is written
    bool drained = false;  // nothing waits any more
    uint64_t part = 0;
    std::optional<uint64_t> taken;
  };

  explicit StreamWriter(Reactor* reactor) : reactor_(reactor) {}

  // Event loop.
  void Write(std::unique_ptr<Message> message);
  // Event loop. Finishes the call after what waits has been written. The first word counts.
  void End(grpc::Status status);
  // Event loop. The client is gone: what waits is dropped. End follows.
  void Break();
  size_t waiting() const;

  // gRPC's threads, for each write that has ended.
  News WriteDone(bool ok);

 private:
  void Next();

  mutable Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // nullptr once it has been told to finish
  std::deque<std::unique_ptr<Message>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Message> writing_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> final_status_ ABSL_GUARDED_BY(mutex_);
  bool headers_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire::oip
