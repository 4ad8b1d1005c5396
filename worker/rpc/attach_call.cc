#include "worker/rpc/attach_call.h"

#include <optional>
#include <string>
#include <utility>

#include "worker/rpc/blocked_writes.h"

namespace quire {
namespace {

// Owners: its GrpcCall, the stream, and work posted by it (a shared_ptr in each).
class AttachCall final : public GrpcCallHandler, public std::enable_shared_from_this<AttachCall> {
 public:
  explicit AttachCall(std::shared_ptr<GrpcCall> call)
      : call_(std::move(call)), blocked_(*call_, [this] { GiveUp(); }) {
    call_->SetReading(false);
  }

  // ---- calls of the router. The receiver may destroy the stream in each of its functions.
  Step Read(std::string_view frame) override {
    return [this, frame] {
      if (receiver_ != nullptr) receiver_->OnFrame(frame);
    };
  }
  void OnHalfClose() override { Close(absl::OkStatus()); }
  void OnCancelled() override {
    Close(absl::CancelledError("ended by the router, its connection, or past a limit"));
  }
  void OnDrained() override {
    if (std::exchange(held_back_, false) && receiver_ != nullptr) receiver_->OnWritable();
  }

  // ---- calls on the stream
  void Start(FrameStream::Receiver* receiver) {
    receiver_ = receiver;
    call_->host().executor.Post([self = shared_from_this()] {
      if (self->why_closed_) return self->TellClosed();
      if (self->receiver_ != nullptr) self->call_->SetReading(true);
    });
  }
  bool Write(std::string_view frame) {
    if (!call_->open()) return true;  // goes nowhere, as on a broken connection
    call_->SendBytes(frame);
    blocked_.Sent(frame.size());
    held_back_ = held_back_ || call_->queued() > kWritablePendingBytes;
    return !held_back_;
  }
  size_t PendingBytes() const { return call_->queued(); }
  void End() {
    if (!call_->open()) return;
    call_->Finish(absl::OkStatus());
    call_->host().executor.Post([self = shared_from_this()] { self->Close(absl::OkStatus()); });
  }
  void Abandon() {
    receiver_ = nullptr;
    blocked_.Stop();
    call_->Reset();
  }

 private:
  void GiveUp() {
    call_->Reset();
    Close(absl::DeadlineExceededError("a write was blocked for 5 s"));
  }
  // The first error counts.
  void Close(absl::Status why) {
    if (why_closed_) return;
    blocked_.Stop();
    why_closed_ = std::move(why);
    TellClosed();
  }
  // Once there is a receiver.
  void TellClosed() {
    if (receiver_ == nullptr || std::exchange(told_, true)) return;
    receiver_->OnClosed(*why_closed_);
  }

  const std::shared_ptr<GrpcCall> call_;
  BlockedWrites blocked_;
  FrameStream::Receiver* receiver_ = nullptr;
  std::optional<absl::Status> why_closed_;
  bool told_ = false;
  bool held_back_ = false;
};

class AttachStream final : public FrameStream {
 public:
  explicit AttachStream(std::shared_ptr<AttachCall> call) : call_(std::move(call)) {}
  ~AttachStream() override { call_->Abandon(); }
  void Start(Receiver* receiver) override { call_->Start(receiver); }
  bool Write(std::string frame) override { return call_->Write(frame); }
  size_t PendingBytes() const override { return call_->PendingBytes(); }
  void Close() override { call_->End(); }

 private:
  const std::shared_ptr<AttachCall> call_;
};

}  // namespace

GrpcMethod AttachMethod(std::function<void(std::unique_ptr<FrameStream>)> accept) {
  const auto begin = [accept = std::move(accept)](std::shared_ptr<GrpcCall> call) {
    Executor& executor = call->host().executor;
    auto attach = std::make_shared<AttachCall>(std::move(call));
    executor.Post([attach, accept] { accept(std::make_unique<AttachStream>(attach)); });
    return attach;
  };
  return {.many_messages = true, .begin = begin, .keeps_metadata = false};
}

}  // namespace quire
