// The messages of one answer on their way to gRPC, one write at a time: who adds them is the event
// loop, who has written one and starts the next is a thread of gRPC's, so that the loop is not
// woken for each.
//
// Owner: an AnswerCall. Any thread, but for what is said of a function.
//  1. At most one write is under way; `reactor` is told to finish exactly once, after the last one
//     or with it, and only once End has said how. It is not touched after that.
//  2. A message but the first is handed on without a flush when another waits behind it: what is
//     ready leaves in one piece.
//  3. What waits is bounded by the windows of the pipeline.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "common/sync.h"
#include "quire/v1/inference.pb.h"
#include "router/core/api.h"

namespace quire {

class CallWriter {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::GenerateResponse>;

  // What a write that has ended means for the event loop.
  struct News {
    bool broken = false;            // the client is gone; nothing more is written
    std::optional<uint64_t> taken;  // outputs below it have been written since it was told last
    uint32_t choice = 0;            // of `taken`
  };

  // A choice's outputs are worth telling of when `taken_step` have been written since the last
  // time.
  CallWriter(Reactor* reactor, uint64_t taken_step) : taken_step_(taken_step), reactor_(reactor) {}

  // Event loop. Nothing is written before Write, End, or the end of the write under way.
  void Add(v1::GenerateResponse message);
  // Event loop. While a write is under way, outputs of one choice travel together.
  void AddDelta(const Delta& delta);
  void Write();
  // Event loop. Finishes the call after what waits has been written. The first word counts.
  void End(grpc::Status status);
  // Event loop. The client is gone: what waits is dropped. End follows.
  void Break();

  // gRPC's threads, for each write that has ended.
  News WriteDone(bool ok);

 private:
  struct Message {
    v1::GenerateResponse response;
    bool is_delta = false;
    uint32_t choice = 0;
    uint64_t taken = 0;  // the choice's outputs below this are in it
  };

  const uint64_t taken_step_;
  Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // nullptr once it has been told to finish
  std::deque<std::unique_ptr<Message>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Message> writing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Message> last_ ABSL_GUARDED_BY(mutex_);  // written with the finish
  std::optional<grpc::Status> final_status_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> told_ ABSL_GUARDED_BY(mutex_);  // by choice, as far as News has said
  bool headers_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
