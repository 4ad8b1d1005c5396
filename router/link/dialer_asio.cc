#include "router/link/dialer_asio.h"

#include <map>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/wire/values.h"
#include "quire/v1/worker.pb.h"
#include "router/link/worker_call_asio.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr Micros kBundleTimeout = 120 * kMicrosPerSecond;

// A FrameStream whose frames are the messages of one Attach, byte for byte.
class AttachStream final : public FrameStream, private WorkerCall::Receiver {
 public:
  explicit AttachStream(std::shared_ptr<WorkerCall> call) : call_(std::move(call)) {}
  ~AttachStream() override { call_->Cancel(); }

  void Start(FrameStream::Receiver* receiver) override {
    receiver_ = receiver;
    call_->Start(*this);
  }
  bool Write(std::string frame) override { return call_->Write(frame); }
  size_t PendingBytes() const override { return call_->PendingBytes(); }
  void Close() override { call_->EndWriting(); }

 private:
  // The receiver may destroy this stream: nothing is touched after the callback.
  void OnMessage(std::string_view message) override { receiver_->OnFrame(message); }
  void OnEnd(const absl::Status& status) override { receiver_->OnClosed(status); }
  void OnWritable() override { receiver_->OnWritable(); }

  const std::shared_ptr<WorkerCall> call_;
  FrameStream::Receiver* receiver_ = nullptr;
};

// One GetTextBundle: collects the chunks, within the limit.
class BundleFetch final : private WorkerCall::Receiver {
 public:
  using Result = absl::StatusOr<std::string>;
  using Done = std::function<void(Result)>;
  BundleFetch(std::shared_ptr<WorkerCall> call, size_t max_bytes, Done done)
      : call_(std::move(call)), max_bytes_(max_bytes), done_(std::move(done)) {}
  ~BundleFetch() override { call_->Cancel(); }

  void Start(const std::string& model_id) {
    pb::GetTextBundleRequest request;
    request.set_model_id(model_id);
    call_->Start(*this);
    call_->Write(request.SerializeAsString());
    call_->EndWriting();
  }

 private:
  void OnMessage(std::string_view message) override {
    pb::TextBundleChunk chunk;
    if (!chunk.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return End(absl::InternalError("a chunk of the text bundle is broken"));
    }
    const bool fits = chunk.data().size() <= kTextBundleChunkBytes &&
                      bundle_.size() + chunk.data().size() <= max_bytes_;
    if (!fits) {
      return End(absl::ResourceExhaustedError("the text bundle is larger than the limit"));
    }
    bundle_ += chunk.data();
    total_ = chunk.total_bytes();
  }
  void OnEnd(const absl::Status& status) override {
    if (!status.ok()) return End(status);
    if (bundle_.size() != total_) {
      return End(absl::DataLossError("the text bundle has not the size that was announced"));
    }
    End(std::move(bundle_));
  }
  // The owner destroys this fetch meanwhile.
  void End(Result result) { std::exchange(done_, nullptr)(std::move(result)); }

  const std::shared_ptr<WorkerCall> call_;
  const size_t max_bytes_;
  Done done_;
  std::string bundle_;
  uint64_t total_ = 0;
};

class AsioDialer final : public Dialer {
 public:
  AsioDialer(AsioExecutor& executor, CurrentWorkerTls tls)
      : tls_(std::move(tls)),
        world_(std::make_shared<WorkerCallWorld>(
            WorkerCallWorld{executor, MakeThreadResolver(executor, LookUpBySystem)})) {}
  ~AsioDialer() override {
    fetches_.clear();
    world_->resolver.reset();  // its threads must not find the executor after this
  }

  std::unique_ptr<FrameStream> Dial(const std::string& target) override {
    return std::make_unique<AttachStream>(MakeCall({.target = target,
                                                    .path = "/quire.worker.v1.Worker/Attach",
                                                    .max_message_bytes = kMaxFrameBytes}));
  }

  void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                       std::function<void(absl::StatusOr<std::string>)> done) override {
    const uint64_t id = ++last_fetch_;
    auto call = MakeCall({.target = target,
                          .path = "/quire.worker.v1.Worker/GetTextBundle",
                          .max_message_bytes = 2 * kTextBundleChunkBytes,
                          .timeout = kBundleTimeout});
    auto end = [this, id, done = std::move(done)](absl::StatusOr<std::string> result) {
      // Kept until `done` has returned, which may end this dialer.
      const auto fetch = fetches_.extract(id);
      done(std::move(result));
    };
    auto fetch = std::make_unique<BundleFetch>(std::move(call), max_bytes, std::move(end));
    fetches_.emplace(id, std::move(fetch)).first->second->Start(model_id);
  }

 private:
  std::shared_ptr<WorkerCall> MakeCall(WorkerCallOptions options) {
    options.tls = tls_ ? tls_() : nullptr;
    return std::make_shared<WorkerCall>(world_, options);
  }

  const CurrentWorkerTls tls_;
  const std::shared_ptr<WorkerCallWorld> world_;
  uint64_t last_fetch_ = 0;
  std::map<uint64_t, std::unique_ptr<BundleFetch>> fetches_;
};

}  // namespace

std::unique_ptr<Dialer> MakeAsioDialer(AsioExecutor& executor, CurrentWorkerTls tls) {
  return std::make_unique<AsioDialer>(executor, std::move(tls));
}

}  // namespace quire
