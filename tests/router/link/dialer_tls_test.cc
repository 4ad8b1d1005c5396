// Dialling workers that show certificates: who they are is their name, not their address.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <optional>

#include "common/runtime/asio_executor.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "quire/v1/worker.grpc.pb.h"
#include "router/link/dialer_asio.h"
#include "tests/support/test_certificates.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// Answers a call's first frame and ends it.
class OneAnswer final : public pb::Worker::CallbackService {
 public:
  grpc::ServerBidiReactor<pb::RouterFrame, pb::WorkerFrame>* Attach(
      grpc::CallbackServerContext*) override {
    class Reactor final : public grpc::ServerBidiReactor<pb::RouterFrame, pb::WorkerFrame> {
     public:
      Reactor() { StartRead(&in_); }
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status::OK);
        out_.mutable_step()->set_frame_seq(7);
        StartWrite(&out_);
      }
      void OnWriteDone(bool) override { Finish(grpc::Status::OK); }
      void OnDone() override { delete this; }

     private:
      pb::RouterFrame in_;
      pb::WorkerFrame out_;
    };
    return new Reactor;
  }
};

class Client final : public FrameStream::Receiver {
 public:
  explicit Client(AsioExecutor& executor) : executor_(executor) {}
  void OnFrame(std::string_view) override { ++frames; }
  void OnClosed(const absl::Status& status) override {
    closed = status;
    executor_.Stop();
  }
  int frames = 0;
  absl::Status closed;

 private:
  AsioExecutor& executor_;
};

class DialerTlsTest : public testing::Test {
 protected:
  DialerTlsTest() {
    signal(SIGPIPE, SIG_IGN);  // as the router does
    Serve(authority.Issue("quire-worker", "serverAuth"));
  }
  ~DialerTlsTest() override { server->Shutdown(std::chrono::system_clock::now()); }

  void Serve(const TestPem& shown) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority.pem();
    options.pem_key_cert_pairs = {{shown.key, shown.certificate}};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterService(&worker);
    server = builder.BuildAndStart();
  }

  WorkerTls Tls(const std::string& authorities, const TestAuthority& signer,
                const std::string& name) {
    const TestPem own = signer.Issue("quire-router", "clientAuth");
    return {{authorities, own.certificate, own.key}, name};
  }
  // Whether a worker that is dialled under `tls` answers.
  bool Answers(std::optional<WorkerTls> tls) {
    AsioExecutor executor;
    auto dialer =
        MakeAsioDialer(executor, [&]() -> const WorkerTls* { return tls ? &*tls : nullptr; });
    Client client(executor);
    auto stream = dialer->Dial("127.0.0.1:" + std::to_string(port));
    stream->Start(&client);
    stream->Write(EncodeHeartbeat(1));
    executor.Run();
    EXPECT_EQ(client.frames == 1, client.closed.ok()) << client.closed;
    return client.frames == 1;
  }

  TestAuthority authority{"authority"};
  TestAuthority other{"other authority"};
  OneAnswer worker;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

// What is exchanged holds for the next dial; a stream that stands keeps what it was dialled with.
TEST_F(DialerTlsTest, EachDialTakesWhatIsCurrent) {
  AsioExecutor executor;
  WorkerTls tls = Tls(authority.pem(), other, "quire-worker");
  auto dialer = MakeAsioDialer(executor, [&] { return &tls; });
  const auto answers = [&] {
    executor.context().restart();
    Client client(executor);
    auto stream = dialer->Dial("127.0.0.1:" + std::to_string(port));
    stream->Start(&client);
    stream->Write(EncodeHeartbeat(1));
    executor.Run();
    return client.frames == 1;
  };
  EXPECT_FALSE(answers());
  tls = Tls(authority.pem(), authority, "quire-worker");
  EXPECT_TRUE(answers());
  tls.name = "another-worker";
  EXPECT_FALSE(answers());
  tls.pem.authorities = "no certificate";
  tls.name = "quire-worker";
  EXPECT_FALSE(answers());
}

TEST_F(DialerTlsTest, AWorkersCertificateMustBeForServers) {
  server->Shutdown(std::chrono::system_clock::now());
  Serve(authority.Issue("quire-worker", "clientAuth"));
  EXPECT_FALSE(Answers(Tls(authority.pem(), authority, "quire-worker")));
}

TEST_F(DialerTlsTest, BothSidesShowWhoTheyAre) {
  const std::string ours = authority.pem();
  EXPECT_TRUE(Answers(Tls(ours, authority, "quire-worker")));
  EXPECT_TRUE(Answers(Tls(other.pem() + ours, authority, "quire-worker")));  // one takes over
  EXPECT_FALSE(Answers(Tls(ours, authority, "127.0.0.1")));  // the address is no name
  EXPECT_FALSE(Answers(Tls(ours, authority, "another-worker")));
  EXPECT_FALSE(Answers(Tls(other.pem(), authority, "quire-worker")));
  EXPECT_FALSE(Answers(Tls(ours, other, "quire-worker")));
  EXPECT_FALSE(Answers(std::nullopt));
}

}  // namespace
}  // namespace quire
