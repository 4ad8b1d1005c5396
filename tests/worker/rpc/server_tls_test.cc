// The worker's port with certificates on both sides, exchanged while it runs.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "common/pem.h"
#include "common/runtime/asio_executor.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/test_certificates.h"
#include "worker/rpc/server.h"

namespace quire {
namespace {

class ServerTlsTest : public testing::Test {
 protected:
  ServerTlsTest() : thread([this] { executor.Run(); }) {
    signal(SIGPIPE, SIG_IGN);  // as the worker does
    const std::string pattern = testing::TempDir() + "quire-tls-XXXXXX";
    folder = pattern;
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    Show(authority.Issue("quire-worker", "serverAuth"), authority.pem());
    WorkerServerOptions options;
    options.context = &executor.context();
    options.executor = &executor;
    options.background = &background;
    options.metrics = &rpc_metrics;
    options.log = &log;
    options.tls =
        ServerTlsOptions{{folder + "/cert", folder + "/key", folder + "/ca"}, {"quire-router"}};
    server = *StartWorkerServer(std::move(options));
    server->SetServing(true);
  }
  ~ServerTlsTest() override {
    server->Shutdown();
    executor.Stop();
    thread.join();
    std::filesystem::remove_all(folder);
  }

  void Show(const TestPem& pem, const std::string& authorities) {
    const std::pair<const char*, const std::string*> files[] = {
        {"/cert", &pem.certificate}, {"/key", &pem.key}, {"/ca", &authorities}};
    for (const auto& [name, text] : files) {
      std::ofstream(folder + name + std::string(".new")) << *text;
      std::filesystem::rename(folder + name + std::string(".new"), folder + name);
    }
  }
  std::unique_ptr<grpc::health::v1::Health::Stub> Dial(const TestAuthority& trusted,
                                                       const TestAuthority* signer,
                                                       const char* name = "quire-router") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = trusted.pem();
    if (signer != nullptr) {
      const TestPem own = signer->Issue(name);
      options.pem_cert_chain = own.certificate;
      options.pem_private_key = own.key;
    }
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("quire-worker");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::health::v1::Health::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(server->port()), grpc::SslCredentials(options), arguments));
  }
  static bool Serves(grpc::health::v1::Health::Stub& stub) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    return stub.Check(&context, {}, &response).ok();
  }

  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics{metrics};
  AsioExecutor executor;
  ThreadBackground background{executor, 1, 16};
  std::thread thread;
  std::string folder;
  TestAuthority authority{"authority"};
  TestAuthority other{"other authority"};
  std::unique_ptr<WorkerServer> server;
};

TEST_F(ServerTlsTest, OnlyRoutersWithACertificateAreServed) {
  EXPECT_TRUE(Serves(*Dial(authority, &authority)));
  EXPECT_FALSE(Serves(*Dial(authority, nullptr)));
  EXPECT_FALSE(Serves(*Dial(authority, &other)));
  EXPECT_FALSE(Serves(*Dial(other, &authority)));
  const auto plain = grpc::health::v1::Health::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server->port()), grpc::InsecureChannelCredentials()));
  EXPECT_FALSE(Serves(*plain));
}

TEST_F(ServerTlsTest, WhatTheAuthorityGaveToOthersIsNoRouters) {
  for (const char* name : {"quire-worker", "server"}) {
    const uint64_t before = rpc_metrics.tls_files.names_refused.value();
    EXPECT_FALSE(Serves(*Dial(authority, &authority, name))) << name;
    EXPECT_GT(rpc_metrics.tls_files.names_refused.value(), before) << name;
  }
  EXPECT_EQ(rpc_metrics.tls.handshakes.value(), 0u);
  EXPECT_TRUE(Serves(*Dial(authority, &authority)));
}

TEST_F(ServerTlsTest, AnotherAuthorityTakesOverUnderOpenCalls) {
  const auto before = Dial(authority, &authority);
  grpc::ClientContext context;
  auto watch = before->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));

  Show(other.Issue("quire-worker"), authority.pem() + other.pem());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool taken_over = false;
  while (!taken_over && std::chrono::steady_clock::now() < limit) {
    taken_over = Serves(*Dial(other, &other));
  }
  EXPECT_TRUE(taken_over);
  EXPECT_TRUE(Serves(*Dial(other, &authority)));  // routers of the old one still come in
  server->SetServing(false);
  ASSERT_TRUE(watch->Read(&response));  // the call that was open goes on
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  while (watch->Read(&response)) {
  }
  (void)watch->Finish();
}

TEST_F(ServerTlsTest, ConnectionsThatNeverShakeHandsKeepNobodyOut) {
  std::vector<int> idle;
  for (size_t i = 0; i < kMaxRouterHandshakes; ++i) {
    idle.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(idle.back(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  EXPECT_TRUE(Serves(*Dial(authority, &authority)));
  EXPECT_EQ(rpc_metrics.tls_handshakes_evicted.value(), 1u);
  EXPECT_EQ(rpc_metrics.tls.handshakes.value(), 1u);
  for (const int fd : idle) ::close(fd);
}

TEST_F(ServerTlsTest, FilesThatDoNotFitChangeNothing) {
  TestPem mixed = authority.Issue("quire-worker");
  mixed.key = authority.Issue("quire-worker").key;
  Show(mixed, authority.pem());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (rpc_metrics.tls_files.reload_failures.value() == 0 &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(rpc_metrics.tls_files.reload_failures.value(), 1u);
  EXPECT_EQ(rpc_metrics.tls_files.reloads.value(), 0u);
  EXPECT_TRUE(Serves(*Dial(authority, &authority)));
}

TEST(MakeServerContext, AFileOfAuthoritiesThatIsCutIsRefused) {
  const TestAuthority authority("authority");
  const TestAuthority other("other authority");
  const TestPem one = authority.Issue("one");
  const std::string both = authority.pem() + other.pem();
  NullLogger log;
  Counter refused;
  const auto make = [&](const std::string& authorities) {
    return MakeServerContext(
        {authorities, one.certificate, one.key},
        std::make_shared<RouterNames>(std::vector<std::string>{"quire-router"}, refused, log));
  };
  EXPECT_TRUE(make(both).ok());
  EXPECT_TRUE(make(both + "\nwords\n").ok());
  for (const size_t cut : {size_t{30}, other.pem().size() / 2}) {
    const std::string part = both.substr(0, both.size() - cut);
    const auto made = make(part);
    EXPECT_NE(StatusMessage(made.status()).find("after 1 good"), std::string::npos) << cut;
  }
}

TEST(CertificateEnd, IsThatOfTheFirstCertificate) {
  const TestAuthority authority("authority");
  const int64_t now = std::time(nullptr);
  const int64_t end = CertificateEnd(authority.Issue("one").certificate);  // for a day
  EXPECT_GT(end, now + 23 * 3600);
  EXPECT_LT(end, now + 25 * 3600);
  EXPECT_EQ(CertificateEnd("nonsense"), 0);
  EXPECT_EQ(CertificateEnd(""), 0);
}

TEST(CheckMutualTls, WhatIsWrongIsNamed) {
  const TestAuthority authority("authority");
  const TestPem one = authority.Issue("one");
  const TestPem two = authority.Issue("two");
  const std::string ca = authority.pem();
  EXPECT_TRUE(CheckMutualTls({ca, one.certificate, one.key}).ok());
  const std::pair<MutualTlsPem, const char*> cases[] = {
      {{"", one.certificate, one.key}, "authorities"},
      {{ca, "nonsense", one.key}, "certificate file"},
      {{ca, one.certificate, one.certificate}, "private key"},
      {{ca, one.certificate, two.key}, "does not fit"}};
  for (const auto& [pem, mention] : cases) {
    const std::string message = StatusMessage(CheckMutualTls(pem));
    EXPECT_NE(message.find(mention), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire
