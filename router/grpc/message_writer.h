// The messages of one streamed call on their way to its client: later outputs may be joined to one
// that still waits, and the call gets it when the client has taken the messages before it.
//
// Owner: an AnswerCall or a StreamCall; event loop only.
//  1. What waits is bounded by the windows of the requests whose answers it holds, and by the
//     owner, which may call `waiting()`.
//  2. What waits beyond a turn of the loop is charged to the call: only then is its client slow.
#pragma once

#include <google/protobuf/arena.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/grpc/call.h"

namespace quire {

template <class Response>
class MessageWriter {
 public:
  struct Message {
    std::array<uint64_t, 96> first_block;  // of the arena: enough for an answer of a token
    google::protobuf::Arena arena{reinterpret_cast<char*>(first_block.data()), sizeof(first_block)};
    Response& response = *google::protobuf::Arena::CreateMessage<Response>(&arena);
    std::string written;            // the response's bytes, where they are in its place
    uint64_t whose = 0;             // its owner's name for the answer that it belongs to
    std::optional<uint64_t> taken;  // once sent, the client has that answer's outputs below this
  };

  explicit MessageWriter(GrpcCall& call) : call_(call) {}

  // Nothing is written before Write or End, or until the client has taken the messages before.
  void Add(std::unique_ptr<Message> message) { waiting_.push_back(std::move(message)); }

  // `join` may add to the last waiting message, and returns whether it did; also false when none
  // waits.
  template <class Join>
  bool JoinLast(Join join) {
    return !waiting_.empty() && join(*waiting_.back());
  }

  // At the end of a turn of the loop, and when the call has drained.
  void Write() {
    if (call_.drained()) return WriteAll();
    if (!call_.open()) return;
    CountWaiting();
    (void)call_.HoldAnswers(held_bytes_);  // what finds no memory ends the call
  }

  // Finishes the call after the waiting messages.
  void End(const GrpcEnd& end) {
    WriteAll();
    call_.Finish(end);
  }

  void Drop() { Clear(); }
  size_t waiting() const { return waiting_.size(); }

 private:
  // Of the messages that were counted, only the last one may have grown.
  void CountWaiting() {
    if (counted_ > 0) held_bytes_ -= last_bytes_;
    for (size_t i = counted_ > 0 ? counted_ - 1 : 0; i < waiting_.size(); ++i) {
      const Message& message = *waiting_[i];
      last_bytes_ = sizeof(Message) + message.arena.SpaceAllocated() +
                    message.response.SpaceUsedLong() +  // texts are outside the arena
                    message.written.capacity();
      held_bytes_ += last_bytes_;
    }
    counted_ = waiting_.size();
  }

  void Clear() {
    waiting_.clear();
    counted_ = held_bytes_ = last_bytes_ = 0;
  }

  void WriteAll() {
    (void)call_.HoldAnswers(0);  // each counts in the call as it is sent
    for (const std::unique_ptr<Message>& message : waiting_) {
      if (!message->written.empty()) {
        call_.SendBytes(message->written);
        continue;
      }
      std::optional<GrpcCall::TakenNote> note;
      if (message->taken) note = {message->whose, *message->taken};
      call_.Send(message->response, note);
    }
    Clear();
  }

  GrpcCall& call_;
  std::vector<std::unique_ptr<Message>> waiting_;
  size_t counted_ = 0;     // of them, the first ones
  size_t held_bytes_ = 0;  // by these
  size_t last_bytes_ = 0;  // by the last of these
};

}  // namespace quire
