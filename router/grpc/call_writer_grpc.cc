#include "router/grpc/call_writer_grpc.h"

#include <utility>

#include "common/check.h"
#include "router/grpc/messages_grpc.h"

namespace quire {

void CallWriter::Add(v1::GenerateResponse response) {
  auto message = std::make_unique<Message>();
  message->response = std::move(response);
  MutexLock lock(mutex_);
  if (!broken_) waiting_.push_back(std::move(message));
}

void CallWriter::AddDelta(const Delta& delta) {
  MutexLock lock(mutex_);
  if (broken_) return;
  const bool joins =
      !waiting_.empty() && waiting_.back()->is_delta && waiting_.back()->choice == delta.choice;
  if (!joins) waiting_.push_back(std::make_unique<Message>());
  Message& message = *waiting_.back();
  message.is_delta = true;
  message.choice = delta.choice;
  message.taken = delta.first_index + delta.ids.size();
  AppendToProto(delta, *message.response.mutable_delta());
}

void CallWriter::End(grpc::Status status) {
  {
    MutexLock lock(mutex_);
    if (!final_status_) final_status_ = std::move(status);
  }
  Write();
}

void CallWriter::Break() {
  MutexLock lock(mutex_);
  broken_ = true;
  waiting_.clear();
}

// The reactor is called outside the lock: it is there until it has been told to finish, and who
// tells it so is one thread.
void CallWriter::Write() {
  Reactor* reactor = nullptr;
  const v1::GenerateResponse* response = nullptr;
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
    const bool over = final_status_ && waiting_.empty() && (next == nullptr || final_status_->ok());
    if (over) {
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

CallWriter::News CallWriter::WriteDone(bool ok) {
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
    } else if (written->is_delta && !broken_ && !final_status_) {
      if (told_.size() <= written->choice) told_.resize(written->choice + 1, 0);
      uint64_t& told = told_[written->choice];
      if (written->taken >= told + taken_step_) {
        news.taken = told = written->taken;
        news.choice = written->choice;
      }
    }
  }
  Write();
  return news;
}

}  // namespace quire
