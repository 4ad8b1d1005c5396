#include "library/memory_stream.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace quire {
namespace {

// One direction: what goes towards an end, and who reads there.
struct Inbox {
  FrameStream::Receiver* receiver = nullptr;
  std::deque<std::string> frames;
  size_t bytes = 0;
  bool writer_waits = false;
  std::optional<absl::Status> closing;  // follows the frames
  bool over = false;                    // the end is gone, or knows that it is closed
  bool posted = false;
};

class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  explicit Pipe(Executor& executor) : executor_(executor) {}

  Inbox& towards(int side) { return inboxes_[side]; }
  void Wake(int side) {
    if (std::exchange(inboxes_[side].posted, true)) return;
    executor_.Post([self = shared_from_this(), side] { self->Deliver(side); });
  }
  void Close(int side, const absl::Status& status) {
    Inbox& inbox = inboxes_[side];
    if (inbox.over || inbox.closing) return;
    inbox.closing = status;
    Wake(side);
  }

 private:
  // A receiver may destroy its end, or the other one, in any call.
  void Deliver(int side) {
    Inbox& inbox = inboxes_[side];
    inbox.posted = false;
    if (inbox.receiver == nullptr) return;  // Start wakes it
    while (!inbox.over && !inbox.frames.empty()) {
      const std::string frame = std::move(inbox.frames.front());
      inbox.frames.pop_front();
      inbox.bytes -= frame.size();
      inbox.receiver->OnFrame(frame);
    }
    Inbox& other = inboxes_[1 - side];
    if (inbox.writer_waits && inbox.bytes * 2 < kMemoryStreamBytes) {
      inbox.writer_waits = false;
      if (!other.over && other.receiver != nullptr) other.receiver->OnWritable();
    }
    if (inbox.over || !inbox.closing || !inbox.frames.empty()) return;
    inbox.over = true;
    inbox.receiver->OnClosed(*inbox.closing);
  }

  Executor& executor_;
  Inbox inboxes_[2];
};

class End final : public FrameStream {
 public:
  End(std::shared_ptr<Pipe> pipe, int side) : pipe_(std::move(pipe)), side_(side) {}
  ~End() override {
    Inbox& own = pipe_->towards(side_);
    own.over = true;
    own.receiver = nullptr;
    own.frames.clear();
    pipe_->Close(1 - side_, absl::CancelledError("the peer cancelled the stream"));
  }
  void Start(Receiver* receiver) override {
    pipe_->towards(side_).receiver = receiver;
    pipe_->Wake(side_);
  }
  bool Write(std::string frame) override {
    Inbox& inbox = pipe_->towards(1 - side_);
    if (inbox.over || inbox.closing) return true;  // it goes nowhere, as on a broken connection
    inbox.bytes += frame.size();
    inbox.frames.push_back(std::move(frame));
    pipe_->Wake(1 - side_);
    inbox.writer_waits = inbox.bytes > kMemoryStreamBytes;
    return !inbox.writer_waits;
  }
  size_t PendingBytes() const override { return pipe_->towards(1 - side_).bytes; }
  void Close() override {
    pipe_->Close(1 - side_, absl::OkStatus());
    pipe_->Close(side_, absl::OkStatus());
  }

 private:
  const std::shared_ptr<Pipe> pipe_;
  const int side_;
};

}  // namespace

MemoryStreams MakeMemoryStreams(Executor& executor) {
  const auto pipe = std::make_shared<Pipe>(executor);
  return {std::make_unique<End>(pipe, 0), std::make_unique<End>(pipe, 1)};
}

}  // namespace quire
