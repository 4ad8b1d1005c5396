#include <google/protobuf/stubs/logging.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <future>
#include <utility>

#include "common/blocked_write.h"
#include "common/grpc/server.h"
#include "common/runtime/timer.h"
#include "common/tls/tls_handshakes.h"
#include "common/wire/values.h"
#include "quire/v1/worker.pb.h"
#include "worker/rpc/attach_call.h"
#include "worker/rpc/bundle_call.h"
#include "worker/rpc/listen_asio.h"
#include "worker/rpc/server.h"

namespace quire {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 256;
constexpr Micros kAcceptPause = 100 * kMicrosPerMilli;   // when the process is out of descriptors
constexpr Micros kShutdownGrace = 2 * kMicrosPerSecond;  // for the last frames of Attaches
constexpr char kService[] = "quire.worker.v1.Worker";

GrpcLimits LimitsOfPort() {
  GrpcLimits limits;
  limits.max_receive_bytes = kMaxFrameBytes + (64u << 10);
  limits.max_send_bytes = kMaxFrameBytes + (64u << 10);
  limits.background_parse_bytes =
      limits.max_receive_bytes;  // frames are parsed where they are used
  limits.max_concurrent_streams = 16;
  limits.stream_window_bytes = 2u << 20;  // many Submits fit in
  limits.connection_window_bytes = 4u << 20;
  limits.keep_alive = 30 * kMicrosPerSecond;
  limits.ping_timeout = 10 * kMicrosPerSecond;
  limits.write_timeout = kWriteBlockedTurns * kMicrosPerSecond;
  limits.write_step_bytes = kWriteStepBytes;
  return limits;
}

class WorkerServerImpl final : public WorkerServer {
 public:
  explicit WorkerServerImpl(WorkerServerOptions options)
      : options_(std::move(options)), acceptor_(*options_.context) {}
  ~WorkerServerImpl() override { *alive_ = false; }

  absl::Status Start();
  int port() const override { return port_; }
  void SetServing(bool serving) override {
    options_.executor->Post([this, serving] { server_->health().Set(serving); });
  }
  void Shutdown() override;

 private:
  void MakeServer();
  void MakeHandshakes();
  void Accept();
  void Accepted(tcp::socket socket);
  void Adopt(EdgeStream stream);
  void Closed();
  void Leave(std::function<void()> done);
  void Left();

  const WorkerServerOptions options_;
  tcp::acceptor acceptor_;
  int port_ = 0;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ServerTls> tls_;  // nullptr: in the clear
  std::unique_ptr<TlsHandshakes> handshakes_;
  size_t open_ = 0;
  Timer retry_{*options_.executor};
  bool stopping_ = false;
  bool server_left_ = false;
  bool shut_down_ = false;
  std::function<void()> left_;  // callers that wait for the last connection
  // Handlers that were queued before the server was destroyed check this first.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

absl::Status WorkerServerImpl::Start() {
  // For the whole process, which has one port: log lines about unreadable messages would contain
  // free text that a hostile peer chooses.
  google::protobuf::SetLogHandler(nullptr);
  if (options_.tls) {
    auto tls = ServerTls::Read(*options_.tls, options_.metrics->tls_files, *options_.log);
    if (!tls.ok()) return Annotate(tls.status(), "--tls-cert-file, --tls-key-file, --tls-ca-file");
    tls_ = *std::move(tls);
    MakeHandshakes();
  }
  QUIRE_RETURN_IF_ERROR(Annotate(ListenOn(acceptor_, options_.host, options_.port, kBacklog),
                                 "--listen (port 0 lets the system choose)"));
  error_code ignored;
  port_ = acceptor_.local_endpoint(ignored).port();
  MakeServer();
  options_.executor->Post([this] {
    if (tls_ != nullptr) tls_->Watch(*options_.executor, *options_.background);
    Accept();
  });
  return absl::OkStatus();
}

void WorkerServerImpl::MakeServer() {
  GrpcHost host{.executor = *options_.executor,
                .log = *options_.log,
                .counters = options_.metrics->grpc,
                .limits = LimitsOfPort(),
                .background = options_.background};
  host.limits.max_connection_memory_bytes = RouterConnectionBytes(options_.memory->limit());
  host.limit_names.client_memory = host.limit_names.connection_memory =
      " (--max-router-memory-bytes)";
  host.memory = options_.memory;
  // Messages that wait have no limit of their own.
  host.bodies =
      std::make_shared<MemoryAccount>(options_.memory->limit(), nullptr, MemoryScope::kWaiting);
  server_ = std::make_unique<GrpcServer>(std::move(host));
  server_->methods().Add(kService, "Attach", AttachMethod(options_.accept));
  server_->methods().Add(kService, "GetTextBundle",
                         BundleMethod(options_.model_id, options_.text_bundle));
}

void WorkerServerImpl::MakeHandshakes() {
  RpcMetrics& metrics = *options_.metrics;
  handshakes_ =
      std::make_unique<TlsHandshakes>(TlsHandshake::Options{.context = nullptr,
                                                            .executor = *options_.executor,
                                                            .counters = metrics.tls,
                                                            .pool = options_.background},
                                      kMaxRouterHandshakes, metrics.tls_handshakes_evicted);
}

void WorkerServerImpl::Accept() {
  if (stopping_) return;
  acceptor_.async_accept([this, alive = alive_](const error_code& error, tcp::socket socket) {
    if (!*alive || stopping_ || error == boost::asio::error::operation_aborted) return;
    if (!error) {
      Accepted(std::move(socket));
      return Accept();
    }
    retry_.SetIn(kAcceptPause, [this] { Accept(); });
  });
}

void WorkerServerImpl::Accepted(tcp::socket socket) {
  if (open_ >= options_.max_connections) {
    options_.metrics->connections_refused.Add();
    return;  // the socket is closed as it goes out of scope
  }
  ++open_;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (handshakes_ == nullptr) return Adopt(EdgeStream(std::move(socket)));
  const bool begun = handshakes_->Begin(
      std::move(socket), tls_->current(), [this](std::optional<EdgeStream> stream) {
        if (!stream || stopping_)
          return Closed();  // a peer that comes so late finds a closed connection
        Adopt(*std::move(stream));
      });
  if (!begun) Closed();
}

void WorkerServerImpl::Adopt(EdgeStream stream) {
  server_->Adopt(std::move(stream), {}, [this] { Closed(); });
}

void WorkerServerImpl::Closed() {
  --open_;
  Left();
}

void WorkerServerImpl::Shutdown() {
  if (std::exchange(shut_down_, true)) return;
  std::promise<void> done;
  options_.executor->Post([this, &done] { Leave([&done] { done.set_value(); }); });
  done.get_future().wait();
}

void WorkerServerImpl::Leave(std::function<void()> done) {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  retry_.Stop();
  if (handshakes_ != nullptr) handshakes_->CloseAll();
  tls_.reset();  // reads no file any more
  left_ = std::move(done);
  server_->Shutdown(kShutdownGrace, absl::UnavailableError("this worker has left"), [this] {
    server_left_ = true;
    Left();
  });
}

void WorkerServerImpl::Left() {
  if (!server_left_ || open_ > 0 || left_ == nullptr) return;
  options_.executor->Post(std::exchange(left_, nullptr));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> StartWorkerServer(WorkerServerOptions options) {
  auto server = std::make_unique<WorkerServerImpl>(std::move(options));
  QUIRE_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<WorkerServer>(std::move(server));
}

}  // namespace quire
