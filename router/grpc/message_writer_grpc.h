// The messages of one streamed call on their way to gRPC, one write at a time: who adds them is the
// event loop, who has written one and starts the next is a thread of gRPC's, so that the loop is
// not woken for each.
//
// Owner: an AnswerCall or a StreamCall. Any thread, but for what is said of a function.
//  1. At most one write is under way; the reactor is told to finish exactly once, after the last
//     one or with it, and only once End has said how. It is not touched after that.
//  2. A message but the first is handed on without a flush when another waits behind it: what is
//     ready leaves in one piece.
//  3. What waits is bounded by the windows of the requests whose answers they are, and by the
//     owner, which may ask for `waiting()`.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/sync.h"

namespace quire {

// What a write that has ended means for the event loop.
struct WriteNews {
  bool broken = false;   // the client is gone; nothing more is written
  bool drained = false;  // nothing waits any more
  uint64_t whose = 0;    // of `taken`, as the message had it
  std::optional<uint64_t> taken;
};

// `ReactorType`: grpc::ServerWriteReactor or grpc::ServerBidiReactor of `Response`.
template <class ReactorType, class Response>
class MessageWriter {
 public:
  using Reactor = ReactorType;

  struct Message {
    Response response;
    uint64_t whose = 0;             // its owner's name for the answer that it is of
    std::optional<uint64_t> taken;  // that answer's outputs below this are the client's then
  };

  explicit MessageWriter(Reactor* reactor) : reactor_(reactor) {}

  // Event loop. Nothing is written before Write, End, or the end of the write under way.
  void Add(std::unique_ptr<Message> message) {
    MutexLock lock(mutex_);
    if (broken_ || final_status_) return;
    waiting_.push_back(std::move(message));
  }

  // Event loop. `join` may add to the last message that waits, and says whether it did; false, too,
  // when none waits.
  template <class Join>
  bool JoinLast(Join join) {
    MutexLock lock(mutex_);
    return !broken_ && !final_status_ && !waiting_.empty() && join(*waiting_.back());
  }

  // Event loop.
  void Write() { Next(); }

  // Event loop. Finishes the call after what waits has been written. The first word counts.
  void End(grpc::Status status) {
    {
      MutexLock lock(mutex_);
      if (!final_status_) final_status_ = std::move(status);
    }
    Next();
  }

  // Event loop. The client is gone: what waits is dropped. End follows.
  void Break() {
    MutexLock lock(mutex_);
    broken_ = true;
    waiting_.clear();
  }

  size_t waiting() const {
    MutexLock lock(mutex_);
    return waiting_.size();
  }

  // gRPC's threads, for each write that has ended.
  WriteNews WriteDone(bool ok) {
    WriteNews news;
    std::unique_ptr<Message> written;  // freed outside the lock
    {
      MutexLock lock(mutex_);
      QUIRE_CHECK_MSG(writing_ != nullptr, "what has been written was under way");
      written = std::move(writing_);
      if (!ok) {
        news.broken = !broken_;
        broken_ = true;
        waiting_.clear();
      } else if (!broken_ && !final_status_) {
        news.whose = written->whose;
        news.taken = written->taken;
      }
      news.drained = waiting_.empty();
    }
    Next();
    return news;
  }

 private:
  // The reactor is called outside the lock: it is there until it has been told to finish, and who
  // tells it so is one thread.
  void Next() {
    Reactor* reactor = nullptr;
    const Response* response = nullptr;
    std::optional<grpc::Status> finish;
    grpc::WriteOptions options;
    {
      MutexLock lock(mutex_);
      if (reactor_ == nullptr || writing_) return;
      if (waiting_.empty() && !final_status_) return;
      reactor = reactor_;
      std::unique_ptr<Message> next;
      if (!waiting_.empty()) {
        next = std::move(waiting_.front());
        waiting_.pop_front();
        response = &next->response;
      }
      // The last message and the status are one write; with an error the message goes first.
      if (final_status_ && waiting_.empty() && (next == nullptr || final_status_->ok())) {
        finish = *final_status_;
        reactor_ = nullptr;
        last_ = std::move(next);
      } else {
        // The headers, which leave with the first message, never count as written without a flush.
        if (!waiting_.empty() && headers_sent_) options.set_buffer_hint();
        headers_sent_ = true;
        writing_ = std::move(next);
      }
    }
    if (!finish) {
      reactor->StartWrite(response, options);
    } else if (response != nullptr) {
      reactor->StartWriteAndFinish(response, options, *finish);
    } else {
      reactor->Finish(*finish);
    }
  }

  mutable Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // nullptr once it has been told to finish
  std::deque<std::unique_ptr<Message>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Message> writing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Message> last_ ABSL_GUARDED_BY(mutex_);  // written with the finish
  std::optional<grpc::Status> final_status_ ABSL_GUARDED_BY(mutex_);
  bool headers_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
