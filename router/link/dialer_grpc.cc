#include "router/link/dialer_grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <utility>

#include "common/wire.h"
#include "quire/v1/worker.grpc.pb.h"
#include "router/link/stream_grpc.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr auto kBundleDeadline = std::chrono::seconds(120);
constexpr int kLinkWindowBytes = 2 << 20;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, size_t max_receive,
                                           const WorkerTls* tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(max_receive));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxFrameBytes));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 2);
  // A window that many frames fit in, instead of gRPC's probes for a good one, whose pings and
  // timers wake threads at both ends all the time.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLinkWindowBytes);
  if (tls == nullptr) {
    return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  }
  // An address says nothing of who is there: the certificate's name does.
  arguments.SetSslTargetNameOverride(tls->name);
  const grpc::SslCredentialsOptions options{tls->pem.authorities, tls->pem.key,
                                            tls->pem.certificate};
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(options), arguments);
}

// One GetTextBundle: collects the chunks, within the limit.
class BundleFetch final : public grpc::ClientReadReactor<pb::TextBundleChunk> {
 public:
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  BundleFetch(Executor& executor, std::shared_ptr<GrpcCalls> calls, size_t max_bytes, Done done)
      : executor_(executor),
        calls_(std::move(calls)),
        max_bytes_(max_bytes),
        done_(std::move(done)) {}

  void Run(const std::string& target, const std::string& model_id, const WorkerTls* tls) {
    stub_ = pb::Worker::NewStub(MakeChannel(target, 2 * kTextBundleChunkBytes, tls));
    request_.set_model_id(model_id);
    context_->set_deadline(std::chrono::system_clock::now() + kBundleDeadline);
    calls_->Add(context_);
    stub_->async()->GetTextBundle(context_.get(), &request_, this);
    StartRead(&chunk_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const bool fits = chunk_.data().size() <= kTextBundleChunkBytes &&
                      bundle_.size() + chunk_.data().size() <= max_bytes_;
    if (!fits) {
      too_large_ = true;
      context_->TryCancel();
      return;
    }
    bundle_ += chunk_.data();
    total_ = chunk_.total_bytes();
    StartRead(&chunk_);
  }

  void OnDone(const grpc::Status& status) override {
    absl::StatusOr<std::string> result = std::move(bundle_);
    if (too_large_) {
      result = absl::ResourceExhaustedError("the text bundle is larger than the limit");
    } else if (!status.ok()) {
      result = FromGrpcStatus(status);
    } else if (result->size() != total_) {
      result = absl::DataLossError("the text bundle has not the size that was announced");
    }
    // The executor lets go of the call: see GrpcCalls.
    const std::shared_ptr<GrpcCalls> calls = calls_;
    const grpc::ClientContext* context = context_.get();
    Executor& executor = executor_;
    executor.Post([self = std::shared_ptr<BundleFetch>(this),
                   result = std::make_shared<absl::StatusOr<std::string>>(std::move(result))] {
      self->calls_->Release(self->context_);
      self->done_(std::move(*result));
    });
    calls->Done(context);
  }

 private:
  Executor& executor_;
  const std::shared_ptr<GrpcCalls> calls_;
  const size_t max_bytes_;
  Done done_;
  std::unique_ptr<pb::Worker::Stub> stub_;
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  pb::GetTextBundleRequest request_;
  pb::TextBundleChunk chunk_;
  std::string bundle_;
  uint64_t total_ = 0;
  bool too_large_ = false;
};

class GrpcDialer final : public Dialer {
 public:
  GrpcDialer(Executor& executor, CurrentWorkerTls tls)
      : executor_(executor), tls_(std::move(tls)), calls_(std::make_shared<GrpcCalls>()) {}
  ~GrpcDialer() override { calls_->CancelAllAndWait(); }

  std::unique_ptr<FrameStream> Dial(const std::string& target) override {
    return MakeGrpcStream(executor_, calls_, MakeChannel(target, kMaxFrameBytes, Tls()),
                          "/quire.worker.v1.Worker/Attach");
  }

  void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                       std::function<void(absl::StatusOr<std::string>)> done) override {
    (new BundleFetch(executor_, calls_, max_bytes, std::move(done)))->Run(target, model_id, Tls());
  }

 private:
  const WorkerTls* Tls() const { return tls_ ? tls_() : nullptr; }

  Executor& executor_;
  const CurrentWorkerTls tls_;
  const std::shared_ptr<GrpcCalls> calls_;
};

}  // namespace

std::unique_ptr<Dialer> MakeGrpcDialer(Executor& executor, CurrentWorkerTls tls) {
  return std::make_unique<GrpcDialer>(executor, std::move(tls));
}

}  // namespace quire
