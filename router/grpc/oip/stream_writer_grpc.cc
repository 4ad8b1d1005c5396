#include "router/grpc/oip/stream_writer_grpc.h"

#include <utility>

#include "common/check.h"

namespace quire::oip {

void StreamWriter::Write(std::unique_ptr<Message> message) {
  {
    MutexLock lock(mutex_);
    if (broken_ || final_status_) return;
    waiting_.push_back(std::move(message));
  }
  Next();
}

void StreamWriter::End(grpc::Status status) {
  {
    MutexLock lock(mutex_);
    if (!final_status_) final_status_ = std::move(status);
  }
  Next();
}

void StreamWriter::Break() {
  MutexLock lock(mutex_);
  broken_ = true;
  waiting_.clear();
}

size_t StreamWriter::waiting() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

// The reactor is called outside the lock: it is there until it has been told to finish, and who
// tells it so is one thread.
void StreamWriter::Next() {
  Reactor* reactor = nullptr;
  const Message* message = nullptr;
  std::optional<grpc::Status> finish;
  grpc::WriteOptions options;
  {
    MutexLock lock(mutex_);
    if (reactor_ == nullptr || writing_) return;
    reactor = reactor_;
    if (!waiting_.empty()) {
      writing_ = std::move(waiting_.front());
      waiting_.pop_front();
      message = writing_.get();
      // The headers, which leave with the first message, never count as written without a flush.
      if (!waiting_.empty() && headers_sent_) options.set_buffer_hint();
      headers_sent_ = true;
    } else if (final_status_) {
      finish = *final_status_;
      reactor_ = nullptr;
    } else {
      return;
    }
  }
  if (finish) {
    reactor->Finish(*finish);
  } else {
    reactor->StartWrite(&message->response, options);
  }
}

StreamWriter::News StreamWriter::WriteDone(bool ok) {
  News news;
  std::unique_ptr<Message> written;
  {
    MutexLock lock(mutex_);
    QUIRE_CHECK_MSG(writing_ != nullptr, "what has been written was under way");
    written = std::move(writing_);
    if (!ok) {
      news.broken = !broken_;
      broken_ = true;
      waiting_.clear();
    } else {
      news.part = written->part;
      news.taken = written->taken;
    }
    news.drained = waiting_.empty();
  }
  Next();
  return news;
}

}  // namespace quire::oip
