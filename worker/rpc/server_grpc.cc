#include "worker/rpc/server_grpc.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "common/wire.h"
#include "quire/v1/worker.grpc.pb.h"
#include "worker/rpc/attach_stream_grpc.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// Every limit of the port; none is left to the library.
constexpr int kMaxMessageBytes = static_cast<int>(kMaxFrameBytes) + (64 << 10);
constexpr int kWindowBytes = 2 << 20;  // of a router's stream
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kHandshakeTimeoutMs = 10'000;
constexpr int kMinPingIntervalMs = 9'000;  // routers ping every 10 s or less often
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr size_t kMaxBufferBytes = 256u << 20;  // of gRPC's own, over all connections
constexpr int kMaxThreads = 32;
constexpr int kMaxBundleStreams = 64;
constexpr auto kShutdownGrace = std::chrono::seconds(1);

// Sends the bundle chunk by chunk; deletes itself.
class BundleReactor final : public grpc::ServerWriteReactor<pb::TextBundleChunk> {
 public:
  BundleReactor(const std::string& bundle, std::atomic<int>& open) : bundle_(bundle), open_(open) {
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::CANCELLED, "the router is gone"});
    WriteNext();
  }
  void OnDone() override {
    --open_;
    delete this;
  }

 private:
  void WriteNext() {
    if (offset_ >= bundle_.size()) return Finish(grpc::Status::OK);
    const size_t count = std::min(kTextBundleChunkBytes, bundle_.size() - offset_);
    chunk_.set_data(bundle_.data() + offset_, count);
    chunk_.set_total_bytes(bundle_.size());
    offset_ += count;
    StartWrite(&chunk_);
  }

  const std::string& bundle_;
  std::atomic<int>& open_;
  size_t offset_ = 0;
  pb::TextBundleChunk chunk_;
};

// Says one status and nothing else; deletes itself.
class RefusalReactor final : public grpc::ServerWriteReactor<pb::TextBundleChunk> {
 public:
  explicit RefusalReactor(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class WorkerService final : public pb::Worker::WithRawCallbackMethod_Attach<
                                pb::Worker::WithCallbackMethod_GetTextBundle<pb::Worker::Service>> {
 public:
  explicit WorkerService(GrpcServerOptions options) : options_(std::move(options)) {}

  AttachReactorBase* Attach(grpc::CallbackServerContext* context) override {
    return MakeAttachReactor(context, *options_.executor, options_.accept);
  }

  grpc::ServerWriteReactor<pb::TextBundleChunk>* GetTextBundle(
      grpc::CallbackServerContext* /*context*/, const pb::GetTextBundleRequest* request) override {
    if (request->model_id() != options_.model_id) {
      return new RefusalReactor({grpc::StatusCode::FAILED_PRECONDITION,
                                 "model_id: this worker serves " + options_.model_id});
    }
    if (++open_bundles_ > kMaxBundleStreams) {
      --open_bundles_;
      return new RefusalReactor({grpc::StatusCode::RESOURCE_EXHAUSTED,
                                 "64 routers fetch the text bundle now; try again in a second"});
    }
    return new BundleReactor(options_.text_bundle, open_bundles_);
  }

 private:
  const GrpcServerOptions options_;
  std::atomic<int> open_bundles_{0};
};

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A window that many Submits fit in: see the router's MakeChannel.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  // Two workers on one port would each get some of the routers: the second one must fail instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("quire-worker");
  quota.Resize(kMaxBufferBytes);
  quota.SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
}

constexpr unsigned kTlsRefreshSeconds = 1;

// A router must show a certificate of one of the authorities, whatever its address.
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const std::optional<ServerTlsFiles>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  namespace secure = grpc::experimental;
  secure::TlsServerCredentialsOptions options(
      std::make_shared<secure::FileWatcherCertificateProvider>(
          tls->key, tls->certificate, tls->authorities, kTlsRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return secure::TlsServerCredentials(options);
}

class GrpcServerImpl final : public GrpcServer {
 public:
  explicit GrpcServerImpl(GrpcServerOptions options)
      : listen_(options.listen), tls_(options.tls), service_(std::move(options)) {}
  ~GrpcServerImpl() override { Shutdown(); }

  absl::Status Start() {
    // Switches of the libraries for the whole process; a worker has one server. What they would log
    // is free text among our lines, made to order by any hostile peer; what matters of it comes
    // back as a status.
    gpr_set_log_function([](gpr_log_func_args*) {});
    google::protobuf::SetLogHandler(nullptr);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    SetLimits(builder);
    builder.AddListeningPort(listen_, CredentialsOf(tls_), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_.reset();
      return absl::UnavailableError(
          AbslView("cannot listen on " + listen_ + " (taken, or not an address of this host)"));
    }
    SetServing(false);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void SetServing(bool serving) override {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    health->SetServingStatus("quire.worker.v1.Worker", serving);
    health->SetServingStatus("", serving);
  }

  void Shutdown() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }

 private:
  const std::string listen_;
  const std::optional<ServerTlsFiles> tls_;
  int port_ = 0;
  WorkerService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> StartGrpcServer(GrpcServerOptions options) {
  auto server = std::make_unique<GrpcServerImpl>(std::move(options));
  QUIRE_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace quire
