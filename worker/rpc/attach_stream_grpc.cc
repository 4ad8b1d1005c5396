#include "worker/rpc/attach_stream_grpc.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace quire {
namespace {

class Reactor;

// What both sides of the seam share; used on the executor only.
struct Attach : std::enable_shared_from_this<Attach> {
  Attach(Reactor& reactor, Executor& executor) : reactor(&reactor), executor(executor) {}

  void Start(FrameStream::Receiver* to);
  bool Write(std::string frame);
  void Close();
  void Abandon();

  void OnRead(std::string frame);
  void ReadOn();
  void OnReadEnded();
  void OnWritten(bool ok);
  void OnDone();

  void Pump();
  void Fail(const absl::Status& why);
  void TellClosed(const absl::Status& why);
  void FinishOnce(const grpc::Status& status);

  Reactor* reactor;  // valid until OnDone
  Executor& executor;
  FrameStream::Receiver* receiver = nullptr;
  std::deque<std::string> queue;  // front: being written when `writing`
  size_t pending_bytes = 0;
  TimerId blocked_timer = 0;  // of the write under way
  bool writing = false;
  bool held_back = false;
  bool closing = false;
  bool failed = false;
  bool finished = false;
  bool told_closed = false;
};

class Reactor final : public AttachReactorBase {
 public:
  Reactor(grpc::CallbackServerContext* context, Executor& executor)
      : context_(context),
        executor_(executor),
        attach_(std::make_shared<Attach>(*this, executor)) {}

  const std::shared_ptr<Attach>& attach() const { return attach_; }

  // On the executor.
  void ReadNext() { StartRead(&incoming_); }
  void WriteFrame(const std::string& frame) {
    const grpc::Slice slice(frame);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&outgoing_);
  }
  void CancelCall() { context_->TryCancel(); }

  // On gRPC's threads.
  void OnReadDone(bool ok) override {
    if (!ok) {
      executor_.Post([attach = attach_] { attach->OnReadEnded(); });
      return;
    }
    std::vector<grpc::Slice> slices;
    std::string frame;
    if (incoming_.Dump(&slices).ok()) {
      frame.reserve(incoming_.Length());
      for (const grpc::Slice& slice : slices) {
        frame.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
    }
    incoming_.Clear();
    executor_.Post([attach = attach_, frame = std::move(frame)]() mutable {
      attach->OnRead(std::move(frame));
    });
  }
  void OnWriteDone(bool ok) override {
    executor_.Post([attach = attach_, ok] { attach->OnWritten(ok); });
  }
  void OnCancel() override {
    executor_.Post([attach = attach_] {
      attach->Fail(absl::CancelledError("the router or its connection is gone"));
    });
  }
  void OnDone() override {
    executor_.Post([attach = attach_] { attach->OnDone(); });
  }

 private:
  grpc::CallbackServerContext* const context_;
  Executor& executor_;
  const std::shared_ptr<Attach> attach_;  // owners: this reactor, the stream, and posted work
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
};

void Attach::Start(FrameStream::Receiver* to) {
  receiver = to;
  if (!finished && !failed) return reactor->ReadNext();
  executor.Post([self = shared_from_this()] {
    if (self->receiver == nullptr) return;
    self->receiver->OnClosed(absl::CancelledError("the router went before it was heard"));
  });
}

bool Attach::Write(std::string frame) {
  if (closing || failed || finished) return true;  // goes nowhere, as on a broken connection
  pending_bytes += frame.size();
  queue.push_back(std::move(frame));
  Pump();
  if (pending_bytes <= kWritablePendingBytes) return true;
  held_back = true;
  return false;
}

void Attach::Pump() {
  if (writing || finished) return;
  if (queue.empty()) {
    if (closing) FinishOnce(grpc::Status::OK);
    return;
  }
  writing = true;
  reactor->WriteFrame(queue.front());
  blocked_timer =
      executor.PostAt(executor.clock().Now() + kWriteBlockedLimit, [self = weak_from_this()] {
        const auto attach = self.lock();
        if (attach == nullptr) return;
        attach->blocked_timer = 0;
        attach->Fail(absl::DeadlineExceededError("a write was blocked for 5 s"));
      });
}

void Attach::OnWritten(bool ok) {
  QUIRE_CHECK(writing && !queue.empty());
  writing = false;
  if (blocked_timer != 0) executor.Cancel(std::exchange(blocked_timer, 0));
  pending_bytes -= queue.front().size();
  queue.pop_front();
  if (failed) return FinishOnce({grpc::StatusCode::CANCELLED, "the Attach has ended"});
  if (!ok) return Fail(absl::UnavailableError("the connection to the router broke"));
  Pump();
  if (!held_back || pending_bytes >= kWritablePendingBytes / 2) return;
  held_back = false;
  if (receiver != nullptr) receiver->OnWritable();
}

void Attach::OnRead(std::string frame) {
  if (receiver == nullptr || failed || finished) return;
  receiver->OnFrame(frame);
  // gRPC writes a window update as soon as a read begins: what the frame is answered with in this
  // turn of the executor goes first.
  executor.Post([self = shared_from_this()] { self->ReadOn(); });
}

void Attach::ReadOn() {
  if (receiver != nullptr && !failed && !finished) reactor->ReadNext();
}

void Attach::OnReadEnded() {
  if (failed || finished) return;
  TellClosed(absl::OkStatus());
}

void Attach::Close() {
  closing = true;
  Pump();
}

void Attach::Fail(const absl::Status& why) {
  if (finished || failed) return;
  failed = true;
  reactor->CancelCall();
  if (!writing) FinishOnce({grpc::StatusCode::CANCELLED, "the Attach has ended"});
  TellClosed(why);
}

void Attach::Abandon() {
  receiver = nullptr;
  Fail(absl::CancelledError("the session is gone"));
}

void Attach::TellClosed(const absl::Status& why) {
  if (std::exchange(told_closed, true) || receiver == nullptr) return;
  receiver->OnClosed(why);
}

void Attach::FinishOnce(const grpc::Status& status) {
  if (std::exchange(finished, true)) return;
  reactor->Finish(status);
}

void Attach::OnDone() {
  delete std::exchange(reactor, nullptr);
  TellClosed(absl::OkStatus());
}

class GrpcFrameStream final : public FrameStream {
 public:
  explicit GrpcFrameStream(std::shared_ptr<Attach> attach) : attach_(std::move(attach)) {}
  ~GrpcFrameStream() override { attach_->Abandon(); }
  void Start(Receiver* receiver) override { attach_->Start(receiver); }
  bool Write(std::string frame) override { return attach_->Write(std::move(frame)); }
  size_t PendingBytes() const override { return attach_->pending_bytes; }
  void Close() override { attach_->Close(); }

 private:
  const std::shared_ptr<Attach> attach_;
};

}  // namespace

AttachReactorBase* MakeAttachReactor(
    grpc::CallbackServerContext* context, Executor& executor,
    const std::function<void(std::unique_ptr<FrameStream>)>& accept) {
  auto* reactor = new Reactor(context, executor);  // deleted by Attach::OnDone
  executor.Post(
      [attach = reactor->attach(), accept] { accept(std::make_unique<GrpcFrameStream>(attach)); });
  return reactor;
}

}  // namespace quire
