#include "router/link/stream_grpc.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "common/check.h"

namespace quire {

void GrpcCalls::Add(std::shared_ptr<grpc::ClientContext> context) {
  MutexLock lock(mutex_);
  live_.emplace(context.get(), std::move(context));
}

void GrpcCalls::Done(const grpc::ClientContext* context) {
  MutexLock lock(mutex_);
  if (auto node = live_.extract(context); !node.empty()) done_.insert(std::move(node));
  gone_.notify_all();
}

void GrpcCalls::Release(const std::shared_ptr<grpc::ClientContext>& context) {
  MutexLock lock(mutex_);
  live_.erase(context.get());
  done_.erase(context.get());
  gone_.notify_all();
}

void GrpcCalls::CancelAllAndWait() {
  Contexts running;
  {
    MutexLock lock(mutex_);
    running = live_;
  }
  for (const auto& [key, context] : running) context->TryCancel();
  {
    std::unique_lock<std::mutex> lock(mutex_.native());
    gone_.wait(lock, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return live_.empty(); });
  }
  // The thread that said Done last may be the last to hold this object: it must find nothing in it.
  Contexts done;
  MutexLock lock(mutex_);
  done.swap(done_);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      AbslView(status.error_message()));
}

namespace {

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// The call itself. Keeps itself alive until gRPC is done with it. A hold keeps OnDone away while
// writes may still be started from the executor; it is let go once reading has ended and no write
// is under way.
class Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                   public std::enable_shared_from_this<Call> {
 public:
  Call(Executor& executor, std::shared_ptr<GrpcCalls> calls, std::shared_ptr<grpc::Channel> channel)
      : executor_(executor), calls_(std::move(calls)), stub_(std::move(channel)) {}

  // ---- executor's thread
  void Begin(FrameStream::Receiver* receiver, const std::string& method) {
    receiver_ = receiver;
    self_ = shared_from_this();
    calls_->Add(context_);
    stub_.PrepareBidiStreamingCall(context_.get(), method, {}, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
    {
      MutexLock lock(mutex_);
      begun_ = true;
    }
    Pump();
    WatchWrites();
  }

  bool Write(std::string frame) {
    const grpc::Slice slice(frame);
    {
      MutexLock lock(mutex_);
      if (reading_over_ || writes_failed_) return true;
      pending_bytes_ += slice.size();
      outgoing_.emplace_back(&slice, 1);
    }
    Pump();
    MutexLock lock(mutex_);
    if (pending_bytes_ <= kMaxPendingWriteBytes) return true;
    wants_writable_ = true;
    return false;
  }

  size_t PendingBytes() {
    MutexLock lock(mutex_);
    return pending_bytes_;
  }

  void Close() {
    {
      MutexLock lock(mutex_);
      closing_ = true;
    }
    Pump();
  }

  // No callback follows; the call dies in the background.
  void Detach() {
    receiver_ = nullptr;
    if (watch_ != 0) executor_.Cancel(watch_);
    watch_ = 0;
    context_->TryCancel();
    bool resume = false;
    {
      MutexLock lock(mutex_);
      detached_ = true;
      resume = read_paused_;
      read_paused_ = false;
    }
    if (resume) StartRead(&incoming_);
  }

  // ---- gRPC's threads
  void OnReadDone(bool ok) override {
    if (!ok) {
      EndReading();
      return;
    }
    auto frame = std::make_shared<std::string>(BytesOf(incoming_));
    incoming_.Clear();
    bool more = true;
    {
      MutexLock lock(mutex_);
      ++read_ahead_;
      more = detached_ || read_ahead_ < kMaxReadAhead;
      read_paused_ = !more;
    }
    executor_.Post([self = shared_from_this(), frame] { self->Deliver(*frame); });
    if (more) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    bool release = false;
    bool writable = false;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      write_started_ = 0;
      pending_bytes_ -= current_bytes_;
      if (!ok) {
        writes_failed_ = true;
        outgoing_.clear();
        pending_bytes_ = 0;
      }
      writable = wants_writable_ && pending_bytes_ < kMaxPendingWriteBytes / 2;
      if (writable) wants_writable_ = false;
      release = reading_over_;
    }
    if (writable) {
      executor_.Post([self = shared_from_this()] {
        if (self->receiver_ != nullptr) self->receiver_->OnWritable();
      });
    }
    if (release) {
      RemoveHold();
    } else {
      Pump();
    }
  }

  void OnWritesDoneDone(bool) override {
    bool release = false;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      release = reading_over_;
    }
    if (release) RemoveHold();
  }

  // The executor lets go of the call: see GrpcCalls. Nothing here may be touched once it is posted.
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GrpcCalls> calls = calls_;
    const grpc::ClientContext* context = context_.get();
    Executor& executor = executor_;
    executor.Post([self = std::move(self_), closed = FromGrpcStatus(status)] {
      self->calls_->Release(self->context_);
      if (self->watch_ != 0) self->executor_.Cancel(self->watch_);
      self->watch_ = 0;
      if (self->receiver_ != nullptr) self->receiver_->OnClosed(closed);
    });
    calls->Done(context);
  }

 private:
  // Starts the next write when none is under way. Any thread.
  void Pump() {
    bool done_writing = false;
    {
      MutexLock lock(mutex_);
      if (!begun_ || writing_ || reading_over_ || writes_failed_ || closed_) return;
      if (outgoing_.empty() && !closing_) return;
      writing_ = true;
      if (outgoing_.empty()) {
        closed_ = done_writing = true;
      } else {
        current_ = std::move(outgoing_.front());
        outgoing_.pop_front();
        current_bytes_ = current_.Length();
        write_started_ = executor_.clock().Now();
      }
    }
    if (done_writing) {
      StartWritesDone();
      return;
    }
    StartWrite(&current_);
  }

  void EndReading() {
    bool release = false;
    {
      MutexLock lock(mutex_);
      reading_over_ = true;
      release = !writing_;
    }
    if (release) RemoveHold();
  }

  void Deliver(const std::string& frame) {
    bool resume = false;
    {
      MutexLock lock(mutex_);
      --read_ahead_;
      resume = read_paused_;
      read_paused_ = false;
    }
    if (resume) StartRead(&incoming_);
    if (receiver_ != nullptr) receiver_->OnFrame(frame);
  }

  // 0: no write is under way.
  Micros WriteStarted() {
    MutexLock lock(mutex_);
    return write_started_;
  }

  void WatchWrites() {
    watch_ = executor_.PostAt(executor_.clock().Now() + kMicrosPerSecond, [this] {
      watch_ = 0;
      const Micros started = WriteStarted();
      if (started != 0 && executor_.clock().Now() - started > kWriteBlocked) context_->TryCancel();
      WatchWrites();
    });
  }

  Executor& executor_;
  const std::shared_ptr<GrpcCalls> calls_;
  grpc::GenericStub stub_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  std::shared_ptr<Call> self_;  // until OnDone
  // Executor's thread only.
  FrameStream::Receiver* receiver_ = nullptr;
  TimerId watch_ = 0;
  // gRPC's, while an operation is under way.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer current_;

  Mutex mutex_;
  Micros write_started_ ABSL_GUARDED_BY(mutex_) = 0;  // goes with writing_, so that none is missed
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mutex_);
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t current_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t read_ahead_ ABSL_GUARDED_BY(mutex_) = 0;
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // or the end of writing
  bool wants_writable_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcStream final : public FrameStream {
 public:
  GrpcStream(std::shared_ptr<Call> call, std::string method)
      : call_(std::move(call)), method_(std::move(method)) {}
  ~GrpcStream() override {
    if (started_) call_->Detach();
  }
  void Start(Receiver* receiver) override {
    QUIRE_CHECK_MSG(!started_, "a stream is started once");
    started_ = true;
    call_->Begin(receiver, method_);
  }
  bool Write(std::string frame) override { return call_->Write(std::move(frame)); }
  size_t PendingBytes() const override { return call_->PendingBytes(); }
  void Close() override { call_->Close(); }

 private:
  const std::shared_ptr<Call> call_;
  const std::string method_;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<FrameStream> MakeGrpcStream(Executor& executor, std::shared_ptr<GrpcCalls> calls,
                                            std::shared_ptr<grpc::Channel> channel,
                                            const std::string& method) {
  auto call = std::make_shared<Call>(executor, std::move(calls), std::move(channel));
  return std::make_unique<GrpcStream>(std::move(call), method);
}

}  // namespace quire
