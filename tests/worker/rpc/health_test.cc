// Health on virtual time, and the HTTP port that tells it.
#include "worker/rpc/health.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "common/runtime/virtual_runtime.h"
#include "worker/rpc/http_asio.h"

namespace quire {
namespace {

class HealthTest : public testing::Test {
 protected:
  void Advance(Micros duration) { world.RunUntil(world.clock().Now() + duration); }
  void StepEnds() { progress.last_step_end_us = world.clock().Now(); }

  VirtualWorld world{1};
  StepProgress progress;
  Health health{world.clock()};
};

TEST_F(HealthTest, IsNotReadyBeforeItListensAndNotServingBeforeAStep) {
  EXPECT_FALSE(health.Ready().ok);
  EXPECT_FALSE(health.Serving().ok);
  health.SetListening(true);
  EXPECT_TRUE(health.Ready().ok);
  EXPECT_EQ(health.Serving().why, "starting: there is no engine yet");
  health.SetProgress(&progress);
  StepEnds();
  EXPECT_TRUE(health.Serving().ok);
}

TEST_F(HealthTest, AStepMustHaveEndedWithinTenSeconds) {
  health.SetListening(true);
  health.SetProgress(&progress);
  StepEnds();
  Advance(kHealthyStepAge);
  EXPECT_TRUE(health.Serving().ok);
  Advance(1);
  EXPECT_FALSE(health.Serving().ok);
  EXPECT_TRUE(health.Ready().ok);
  StepEnds();
  EXPECT_TRUE(health.Serving().ok);
}

TEST_F(HealthTest, AStepOverItsLimitIsStuckAtOnce) {
  health.SetListening(true);
  health.SetProgress(&progress);
  StepEnds();
  progress.running_limit_us = 2 * kMicrosPerSecond;
  progress.running_since_us = world.clock().Now();
  Advance(2 * kMicrosPerSecond);
  EXPECT_TRUE(health.Serving().ok);
  Advance(1000);
  EXPECT_EQ(health.Serving().why, "stuck: a step has run for 2001 ms, its limit is 2000 ms");
}

TEST_F(HealthTest, DrainingIsNeitherReadyNorServing) {
  health.SetListening(true);
  health.SetProgress(&progress);
  StepEnds();
  health.SetDraining();
  EXPECT_EQ(health.Ready().why, "draining");
  EXPECT_EQ(health.Serving().why, "draining");
}

class HttpTest : public HealthTest {
 protected:
  HttpTest() {
    metrics.AddCounter({"quire_test_total", "T."}).Add(5);
    server = *StartHttpServer(Options(0));
  }
  HttpServerOptions Options(int port) {
    HttpServerOptions options;
    options.host = "127.0.0.1";
    options.port = port;
    options.health = &health;
    options.metrics = &metrics;
    options.version_json = "{\"version\":\"1\"}";
    options.evicted = &evicted;
    return options;
  }
  // The whole answer to these bytes, until the server closes.
  std::string Exchange(const std::string& request) {
    boost::asio::io_context context;
    boost::asio::ip::tcp::socket socket(context);
    socket.connect(
        {boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(server->port())});
    boost::system::error_code error;
    boost::asio::write(socket, boost::asio::buffer(request), error);
    std::string answer;
    boost::asio::read(socket, boost::asio::dynamic_buffer(answer), error);
    return answer;
  }
  std::string Get(const std::string& path) {
    return Exchange("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }

  Metrics metrics;
  Counter evicted;
  std::unique_ptr<ProbeServer> server;
};

// A client that keeps its connection open.
class Client {
 public:
  explicit Client(int port) : socket_(context_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
  }
  // Whether a probe is answered on it.
  bool Asks() {
    boost::system::error_code error;
    boost::asio::write(
        socket_, boost::asio::buffer(std::string("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")), error);
    std::string answer;
    boost::asio::read_until(socket_, boost::asio::dynamic_buffer(answer), "ok\n", error);
    return !error && answer.starts_with("HTTP/1.1 200 ");
  }
  // Until the server has closed it.
  bool IsClosed() {
    char byte = 0;
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::buffer(&byte, 1), error);
    return error == boost::asio::error::eof || error == boost::asio::error::connection_reset;
  }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket socket_;
};

TEST_F(HttpTest, AnswersProbesMetricsAndVersion) {
  EXPECT_TRUE(Get("/livez").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(Get("/readyz").starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(Get("/health").starts_with("HTTP/1.1 503 "));
  health.SetListening(true);
  health.SetProgress(&progress);
  StepEnds();
  EXPECT_TRUE(Get("/readyz").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(Get("/health?x=1").starts_with("HTTP/1.1 200 "));
  EXPECT_NE(Get("/metrics").find("\nquire_test_total 5\n"), std::string::npos);
  EXPECT_NE(Get("/version").find("{\"version\":\"1\"}"), std::string::npos);
  EXPECT_TRUE(Get("/nothing").starts_with("HTTP/1.1 404 "));
}

TEST_F(HttpTest, SeveralRequestsOnOneConnection) {
  const std::string answer = Exchange(
      "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nHEAD /livez HTTP/1.1\r\nHost: x\r\n"
      "Connection: close\r\n\r\n");
  const size_t second = answer.find("HTTP/1.1 200", 5);
  ASSERT_NE(second, std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;  // HEAD has no body
}

TEST_F(HttpTest, BadRequestsAreAnsweredAndClosed) {
  EXPECT_TRUE(Exchange("POST /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                  .starts_with("HTTP/1.1 405 "));
  EXPECT_TRUE(Exchange("POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
                  .starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(Exchange("\x16\x03\x01nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  const std::string line = "GET /livez HTTP/1.1\r\nConnection: close\r\nx: ";
  const std::string end = "\r\n\r\n";
  const std::string at_limit(kMaxHttpHeaderBytes - line.size() - end.size(), 'a');
  EXPECT_TRUE(Exchange(line + at_limit + end).starts_with("HTTP/1.1 200 "));
  // The start line is counted apart: what is surely above the limit is refused.
  EXPECT_TRUE(Exchange(line + at_limit + line + end).starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpTest, WhoSaysNothingGivesWayToProbes) {
  Client first(server->port());
  ASSERT_TRUE(first.Asks());
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 1; i < kMaxHttpConnections; ++i) {
    silent.push_back(std::make_unique<Client>(server->port()));
  }
  // At the limit all have their places; `first`, which asks again, goes behind those that are
  // silent.
  EXPECT_TRUE(first.Asks());
  EXPECT_EQ(evicted.value(), 0u);
  Client probe(server->port());
  EXPECT_TRUE(probe.Asks());
  EXPECT_EQ(evicted.value(), 1u);
  EXPECT_TRUE(silent.front()->IsClosed());
  EXPECT_TRUE(silent.back()->Asks());
  EXPECT_TRUE(first.Asks());
  // However many more come, a probe is answered.
  for (int i = 0; i < 2 * kMaxHttpConnections; ++i) {
    silent.push_back(std::make_unique<Client>(server->port()));
  }
  EXPECT_TRUE(Get("/livez").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(evicted.value(), 2u + 2 * kMaxHttpConnections);
}

TEST_F(HttpTest, ATakenPortAndABadAddressAreErrors) {
  const auto second = StartHttpServer(Options(server->port()));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(StatusMessage(second.status()).find("127.0.0.1:"), std::string::npos);
  HttpServerOptions options = Options(0);
  options.host = "example.com";
  EXPECT_EQ(StartHttpServer(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
