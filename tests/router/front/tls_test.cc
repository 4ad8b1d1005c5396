// TLS at the edge: ALPN, HTTP/1.1 and gRPC through it, certificates exchanged under running
// streams, handshakes that stall, break or flood.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <map>
#include <thread>

#include "common/pem.h"
#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "common/tls/tls_guard.h"
#include "quire/v1/inference.grpc.pb.h"
#include "router/front/tls_identity.h"
#include "tests/router/support/busy_pool.h"
#include "tests/router/support/grpc_edge.h"
#include "tests/support/test_certificates.h"

namespace quire {
namespace {

// A blocking client of one connection.
class TlsClient {
 public:
  TlsClient(uint16_t port, const std::string& authority, const std::vector<std::string>& protocols)
      : raw_(RawClient::Connect(port)), context_(SSL_CTX_new(TLS_client_method())) {
    BIO* bio = BIO_new_mem_buf(authority.data(), static_cast<int>(authority.size()));
    X509* root = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    if (root != nullptr) X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), root);
    X509_free(root);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = SSL_new(context_);
    std::string wire;
    for (const std::string& protocol : protocols) {
      wire += static_cast<char>(protocol.size());
      wire += protocol;
    }
    if (!wire.empty()) {
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(wire.data()),
                          static_cast<unsigned>(wire.size()));
    }
    SSL_set1_host(ssl_, "edge.test");
    SSL_set_fd(ssl_, raw_.fd());
    connected_ = SSL_connect(ssl_) == 1;
    ERR_clear_error();
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const { return connected_; }
  std::string protocol() const {
    const unsigned char* data = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_, &data, &size);
    return std::string(reinterpret_cast<const char*>(data), size);
  }
  bool Send(const std::string& bytes) {
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // All up to and including the mark, or all there was.
  std::string ReadUntil(const std::string& mark) {
    char buffer[16384];
    size_t at = 0;
    while ((at = in_.find(mark)) == std::string::npos) {
      const int count = SSL_read(ssl_, buffer, sizeof(buffer));
      ERR_clear_error();
      if (count <= 0) return std::exchange(in_, {});
      in_.append(buffer, static_cast<size_t>(count));
    }
    std::string out = in_.substr(0, at + mark.size());
    in_.erase(0, at + mark.size());
    return out;
  }
  std::string Ask(const std::string& request) {
    if (!Send(request)) return "";
    return ReadUntil("\r\n\r\n");
  }
  // Records that bring nothing. False: the server takes no more.
  bool UpdateKeys(int times) {
    for (int i = 0; i < times; ++i) {
      if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
      if (SSL_do_handshake(ssl_) != 1) return false;
    }
    return true;
  }
  void Leave() { raw_.Close(); }

 private:
  RawClient raw_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
  std::string in_;
};

// Files that a test changes, read on virtual time.
class FakeFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, size_t) override {
    const auto found = content.find(path);
    if (found == content.end()) return absl::NotFoundError(AbslView(path));
    return found->second;
  }
  std::map<std::string, std::string> content;
};

class TlsEdge : public testing::Test {
 protected:
  TlsEdge() { signal(SIGPIPE, SIG_IGN); }

  static EdgeContexts ContextsOf(const TestPem& pem) {
    auto contexts = MakeEdgeContexts(pem.certificate, pem.key);
    EXPECT_TRUE(contexts.ok()) << StatusMessage(contexts.status());
    return *contexts;
  }
  void Start(FrontOptions options = {}, const HttpLimits& limits = {}) {
    options.tls = &identity;
    edge = std::make_unique<GrpcEdge>(options, limits);
  }
  std::unique_ptr<TlsClient> Connect(const std::vector<std::string>& protocols = {},
                                     size_t port = 0) {
    return std::make_unique<TlsClient>(edge->ports[port], authority.pem(), protocols);
  }
  std::shared_ptr<grpc::Channel> Channel() {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.pem();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("edge.test");
    return grpc::CreateCustomChannel(edge->Target(), grpc::SslCredentials(options), arguments);
  }

  TestAuthority authority{"test authority"};
  Metrics metrics;
  EdgeMetrics counters{metrics};
  NullLogger log;
  VirtualWorld world{1};
  VirtualBackground background{world.executor(), 1000};
  FakeFiles files;
  TlsIdentity identity{ContextsOf(authority.Issue("edge.test")), counters, log};
  std::unique_ptr<GrpcEdge> edge;
};

TEST_F(TlsEdge, AlpnTakesWhatThePortIsForWhereBothAreOffered) {
  Start();
  struct Case {
    std::vector<std::string> offered;
    std::string chosen[2];  // on --port, on --grpc-port
  };
  const std::vector<Case> cases = {{{}, {"", ""}},
                                   {{"http/1.1"}, {"http/1.1", "http/1.1"}},
                                   {{"h2"}, {"h2", "h2"}},
                                   {{"h2", "http/1.1"}, {"http/1.1", "h2"}},
                                   {{"http/1.1", "h2"}, {"http/1.1", "h2"}},
                                   {{"grpc-exp", "h2"}, {"h2", "h2"}}};
  for (const Case& each : cases) {
    for (const size_t port : {0, 1}) {
      auto client = Connect(each.offered, port);
      ASSERT_TRUE(client->connected());
      EXPECT_EQ(client->protocol(), each.chosen[port]);
    }
  }
  EXPECT_FALSE(Connect({"spdy/3"})->connected());
  EXPECT_FALSE(Connect({"spdy/3"}, 1)->connected());
}

TEST_F(TlsEdge, Http1KeepsAliveAndStreams) {
  Start();
  auto client = Connect({"h2", "http/1.1"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client->Ask(EdgeHarness::Get("/version")).substr(0, 12), "HTTP/1.1 200");
    client->ReadUntil("}");
  }
  client->Send(
      EdgeHarness::Post("/v1/completions", R"({"prompt":"x","max_tokens":400,"stream":true})"));
  const std::string stream = client->ReadUntil("data: [DONE]");
  EXPECT_NE(stream.find("tok399"), std::string::npos);
  client->Leave();
  EXPECT_TRUE(edge->Eventually([&] { return edge->front->connections() == 0; }));
}

TEST_F(TlsEdge, LargeBodiesAndAnswersGoThrough) {
  Start();
  auto client = Connect();
  const std::string prompt(3u << 20, 'p');
  client->Send(EdgeHarness::Post("/tokenize", R"({"prompt":")" + prompt + "\"}"));
  const std::string head = client->ReadUntil("\r\n\r\n");
  EXPECT_EQ(head.substr(0, 12), "HTTP/1.1 200");
  EXPECT_NE(client->ReadUntil("\"token_strs\":null}").find("\"count\":3145729"), std::string::npos);
}

TEST_F(TlsEdge, GrpcGoesThroughTheGuardToo) {
  Start();
  auto stub = v1::Inference::NewStub(Channel());
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_text("x");
  request.mutable_sampling()->set_max_tokens(300);
  auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  int ids = 0;
  while (reader->Read(&response)) ids += response.delta().token_ids_size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(ids, 300);
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.http2_connections.value(), 1u); });
}

TEST_F(TlsEdge, PlainBytesAreNoHandshake) {
  Start();
  for (const uint16_t port : edge->ports) {
    RawClient client = RawClient::Connect(port);
    client.Send(EdgeHarness::Get("/livez"));
    EXPECT_EQ(client.ReadToEnd().find("HTTP/"), std::string::npos);
  }
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_handshake_failures.value(), 2u); });
  EXPECT_TRUE(edge->Eventually([&] { return edge->front->connections() == 0; }));
}

TEST_F(TlsEdge, KeyUpdatesAtTheLimitAreServedAndOneMoreIsClosedAndCounted) {
  Start();
  auto honest = Connect();
  auto client = Connect();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client->UpdateKeys(TlsGuard::kMaxIdleRecords - 1));
    EXPECT_EQ(client->Ask(EdgeHarness::Get("/livez")).substr(0, 12), "HTTP/1.1 200") << i;
    client->ReadUntil("}");
  }
  client->UpdateKeys(TlsGuard::kMaxIdleRecords + 1);
  EXPECT_EQ(client->ReadUntil("never"), "");
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_idle_records.value(), 1u); });
  auto flood = Connect();
  EXPECT_FALSE(flood->UpdateKeys(1'000'000)) << "no one reads them";
  EXPECT_EQ(honest->Ask(EdgeHarness::Get("/livez")).substr(0, 12), "HTTP/1.1 200");
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_idle_records.value(), 2u); });
}

TEST_F(TlsEdge, ASilentHandshakeIsEndedByItsDeadline) {
  FrontOptions options;
  options.tls_handshake_timeout = 20 * kMicrosPerMilli;
  Start(options);
  RawClient client = RawClient::Connect(edge->ports[0]);
  client.Send("\x16\x03\x01");
  EXPECT_EQ(client.ReadToEnd(), "");
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_handshake_failures.value(), 1u); });
}

TEST_F(TlsEdge, HandshakesAtTheLimitGoOnAndOneMoreIsClosed) {
  FrontOptions options;
  options.max_tls_handshakes = 2;
  Start(options);
  auto served = Connect();
  // Answered, so that its handshake has ended here too: it counts no more.
  EXPECT_EQ(served->Ask(EdgeHarness::Get("/livez")).substr(0, 12), "HTTP/1.1 200");
  std::vector<RawClient> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(RawClient::Connect(edge->ports[0]));
  ASSERT_TRUE(edge->Eventually([&] { return edge->front->connections() == 3; }));
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_handshakes_evicted.value(), 0u); });
  silent.push_back(RawClient::Connect(edge->ports[0]));
  EXPECT_EQ(silent[0].ReadToEnd(), "") << "the oldest gives way";
  edge->OnLoop([&] {
    EXPECT_EQ(edge->counters.tls_handshakes_evicted.value(), 1u);
    EXPECT_EQ(edge->counters.tls_handshakes_refused.value(), 0u) << "who came was let in";
  });
  // However many say nothing, or a byte and no more, a client that shakes hands is let in.
  for (int i = 0; i < 20; ++i) {
    silent.push_back(RawClient::Connect(edge->ports[0]));
    silent.back().Send("\x16");
  }
  for (int i = 0; i < 2; ++i) silent.push_back(RawClient::Connect(edge->ports[0]));
  ASSERT_TRUE(edge->Eventually([&] {  // refused is who comes while a byte of both is looked at
    return edge->counters.tls_handshakes_evicted.value() +
               edge->counters.tls_handshakes_refused.value() ==
           23u;
  }));
  bool let_in = false;  // at once, unless a byte of both is still looked at in this very moment
  for (int tries = 0; tries < 3 && !let_in; ++tries) {
    BusyPool looked_at(*edge, 0);  // begins when what was there has ended
    looked_at.GoOn();
    let_in = Connect()->connected();
  }
  EXPECT_TRUE(let_in);
  EXPECT_NE(served->Ask(EdgeHarness::Get("/livez")).find("HTTP/1.1 200"), std::string::npos);
}

// The harness has one thread for them, and a queue of 16.
TEST_F(TlsEdge, HandshakesRunBesideTheLoopAndPastTheirQueueAreRefused) {
  Start();
  auto served = Connect();
  EXPECT_EQ(served->Ask(EdgeHarness::Get("/livez")).substr(0, 12), "HTTP/1.1 200");
  {
    BusyPool busy(*edge, 15);
    std::unique_ptr<TlsClient> last;
    std::thread connects([&] { last = Connect(); });
    EXPECT_NE(served->Ask(EdgeHarness::Get("/livez")).find("HTTP/1.1 200"), std::string::npos)
        << "the loop goes on while handshakes wait";
    busy.GoOn();
    connects.join();
    EXPECT_TRUE(last->connected()) << "the sixteenth";
  }
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_handshakes_refused.value(), 0u); });
  BusyPool busy(*edge, 16);
  EXPECT_FALSE(Connect()->connected());
  edge->OnLoop([&] { EXPECT_EQ(edge->counters.tls_handshakes_refused.value(), 1u); });
  busy.GoOn();
}

TEST_F(TlsEdge, AHandshakeThatIsUnderWayMayBeGivenUp) {
  FrontOptions options;
  options.tls_handshake_timeout = 20 * kMicrosPerMilli;
  Start(options);
  BusyPool busy(*edge, 0);
  RawClient client = RawClient::Connect(edge->ports[0]);
  client.Send("\x16\x03\x01");
  ASSERT_TRUE(edge->Eventually([&] {
    return edge->counters.tls_handshake_failures.value() == 1 && edge->front->connections() == 0;
  }));
  busy.GoOn();
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST_F(TlsEdge, AClientThatTakesNothingIsGivenUp) {
  HttpLimits limits;
  limits.write_timeout = 50 * kMicrosPerMilli;
  Start({}, limits);
  edge->OnLoop([&] { edge->pipeline.mode = FakePipeline::Mode::kFlood; });
  auto client = Connect();
  client->Send(
      EdgeHarness::Post("/v1/completions", R"({"prompt":"x","max_tokens":1000000,"stream":true})"));
  EXPECT_TRUE(edge->Eventually([&] { return edge->front->connections() == 0; }));
  edge->OnLoop([&] { EXPECT_EQ(edge->pipeline.live.size(), 0u); });
}

TEST_F(TlsEdge, AClientThatLeavesIsCancelled) {
  Start();
  edge->OnLoop([&] { edge->pipeline.mode = FakePipeline::Mode::kManual; });
  auto client = Connect();
  client->Send(EdgeHarness::Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(edge->Eventually([&] { return edge->pipeline.live.size() == 1; }));
  client->Leave();
  EXPECT_TRUE(edge->Eventually([&] { return edge->pipeline.cancelled.size() == 1; }));
}

TEST_F(TlsEdge, ANewCertificateIsShownAndRunningStreamsGoOn) {
  Start();
  edge->OnLoop([&] { edge->pipeline.mode = FakePipeline::Mode::kManual; });
  auto before = Connect();
  before->Send(EdgeHarness::Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(edge->Eventually([&] { return edge->pipeline.live.size() == 1; }));

  TestAuthority other("other authority");
  const TestPem first = authority.Issue("edge.test");
  const TestPem second = other.Issue("edge.test");
  files.content = {{"cert", first.certificate}, {"key", first.key}};
  const auto later = [&] {
    edge->OnLoop([&] { world.RunUntil(world.clock().Now() + 3 * kMicrosPerSecond); });
  };
  edge->OnLoop([&] {
    identity.Watch({world.executor(), background, files}, {.paths = {"cert", "key"}},
                   {first.certificate, first.key});
  });
  EXPECT_EQ(counters.tls_certificate_end.value(), CertificateEnd(first.certificate));
  files.content["cert"] = second.certificate;  // half of a change: it does not fit the key
  later();
  EXPECT_EQ(counters.tls_reload_failures.value(), 1u);
  EXPECT_TRUE(Connect()->connected());
  files.content["key"] = second.key;
  later();
  EXPECT_EQ(counters.tls_reloads.value(), 1u);
  EXPECT_FALSE(Connect()->connected());  // it does not trust the other authority
  EXPECT_TRUE(TlsClient(edge->ports[0], other.pem(), {}).connected());
  files.content["cert"] = "nonsense";
  later();
  files.content.erase("cert");
  later();
  EXPECT_EQ(counters.tls_reload_failures.value(), 3u);
  EXPECT_TRUE(TlsClient(edge->ports[0], other.pem(), {}).connected());

  edge->OnLoop([&] {
    auto& [id, live] = *edge->pipeline.live.begin();
    ResponseSink* sink = live.sink;
    sink->OnStarted(FakePipeline::StartedFor(live.request));
    sink->OnDelta(FakePipeline::Token(0, 0));
    ChoiceEnd end;
    end.finish_reason = "length";
    sink->OnChoiceEnd(end);
    edge->pipeline.live.clear();
    sink->OnFinished({});
  });
  EXPECT_NE(before->ReadUntil("data: [DONE]").find("tok0"), std::string::npos);
}

TEST(TlsIdentity, WhatIsWrongIsNamed) {
  TestAuthority authority("a");
  const TestPem one = authority.Issue("one");
  const TestPem two = authority.Issue("two");
  EXPECT_TRUE(MakeEdgeContexts(one.certificate + authority.pem(), one.key).ok());
  const std::vector<std::pair<TestPem, std::string>> cases = {
      {{"", one.key}, "certificate"},
      {{one.key, one.key}, "certificate"},
      {{one.certificate, ""}, "private key"},
      {{one.certificate, one.certificate}, "private key"},
      {{one.certificate, two.key}, "does not fit"}};
  for (const auto& [pem, mention] : cases) {
    const auto context = MakeEdgeContexts(pem.certificate, pem.key);
    ASSERT_FALSE(context.ok());
    const std::string message = StatusMessage(context.status());
    EXPECT_NE(message.find(mention), std::string::npos) << message;
    EXPECT_EQ(message.find("PRIVATE"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire
