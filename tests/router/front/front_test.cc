#include "router/front/front.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <future>
#include <optional>

#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

class FrontTest : public ::testing::Test {
 protected:
  void Listen(FrontOptions options = {}) {
    options.ports = {{0, "--port"}, {0, "--grpc-port"}};
    edge_.OnLoop([&] {
      front_ = std::make_unique<Front>(edge_.executor.context(), edge_.services, options,
                                       [this](int fd, std::string first_bytes, auto on_closed) {
                                         adopted_.push_back({fd, std::move(first_bytes)});
                                         on_closed_ = std::move(on_closed);
                                       });
      const absl::Status status = front_->Listen();
      ASSERT_TRUE(status.ok()) << StatusMessage(status);
      ports_ = front_->ports();
    });
    ASSERT_EQ(ports_.size(), 2u);
  }

  void TearDown() override {
    edge_.OnLoop([this] { front_.reset(); });
  }

  size_t Connections() {
    size_t count = 0;
    edge_.OnLoop([&] { count = front_->connections(); });
    return count;
  }

  EdgeHarness edge_;
  std::vector<std::pair<int, std::string>> adopted_;  // and what was read of it
  std::function<void()> on_closed_;                   // of the last one
  std::unique_ptr<Front> front_;
  std::vector<uint16_t> ports_;
};

TEST_F(FrontTest, BothPortsSpeakHttp1) {
  Listen();
  for (const uint16_t port : ports_) {
    RawClient client = RawClient::Connect(port);
    for (int i = 0; i < 3; ++i) {
      client.Send(edge_.Get("/livez"));
      EXPECT_EQ(client.ReadResponse().status, 200);
    }
  }
}

TEST_F(FrontTest, TheFirstBytesDecideAlsoOneByOne) {
  Listen();
  RawClient http1 = RawClient::Connect(ports_[1]);
  for (const char c : edge_.Get("/version")) http1.Send(std::string_view(&c, 1));
  EXPECT_EQ(http1.ReadResponse().status, 200);
  // A method that begins like the preface.
  RawClient near = RawClient::Connect(ports_[0]);
  near.Send("PRI * HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(near.ReadResponse().status, 404);
  RawClient http2 = RawClient::Connect(ports_[0]);
  for (const char c : kPreface) http2.Send(std::string_view(&c, 1));
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.size() == 1; }));
  RawClient inner(adopted_[0].first);
  EXPECT_EQ(adopted_[0].second + inner.ReadUntil("SM\r\n\r\n"), kPreface);
}

TEST_F(FrontTest, AConnectionOfHttp2CountsUntilItIsSaidToBeClosed) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  client.Send(kPreface);
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.size() == 1; }));
  const RawClient inner(adopted_[0].first);
  EXPECT_EQ(Connections(), 1u);
  edge_.OnLoop([&] { on_closed_(); });
  EXPECT_EQ(Connections(), 0u);
}

// The acceptor's handler is queued when the ports close: it would take the connection in, and ask a
// closed acceptor for the next one again and again.
TEST_F(FrontTest, AConnectionAcceptedAsThePortsCloseIsClosed) {
  Listen();
  std::optional<RawClient> client;
  std::promise<void> closed;
  edge_.OnLoop([&] {
    client.emplace(RawClient::Connect(ports_[0]));
    // The loop looks at its sockets before this, and has the accept done.
    boost::asio::post(edge_.executor.context(), [&] {
      front_->StartDraining();
      closed.set_value();
    });
  });
  closed.get_future().wait();
  EXPECT_EQ(client->ReadToEnd(), "");
  edge_.OnLoop([&] { EXPECT_EQ(front_->connections(), 0u); });
  EXPECT_EQ(edge_.counters.connections_accepted.value(), 0u);
}

TEST_F(FrontTest, AClientOfHttp2ThatSpeaksUpAsThePortsCloseIsClosed) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 1; }));
  edge_.OnLoop([&] { front_->StartDraining(); });
  client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(client.ReadToEnd(), "");
  edge_.OnLoop([&] { EXPECT_EQ(front_->connections(), 0u); });
}

TEST_F(FrontTest, SilenceIsEndedByTheDeadline) {
  FrontOptions options;
  options.first_bytes_timeout = 1000;  // microseconds
  Listen(options);
  RawClient silent = RawClient::Connect(ports_[0]);
  EXPECT_EQ(silent.ReadToEnd(), "");
  RawClient half = RawClient::Connect(ports_[0]);
  half.Send("PRI * HT");
  EXPECT_EQ(half.ReadToEnd(), "");
  EXPECT_EQ(edge_.counters.first_bytes_timeouts.value(), 2u);
  EXPECT_EQ(Connections(), 0u);
}

TEST_F(FrontTest, ConnectionsAtTheLimitAreServedAndOneMoreIsTold) {
  FrontOptions options;
  options.max_connections = 3;
  Listen(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(RawClient::Connect(ports_[i % 2]));
    clients.back().Send(edge_.Get("/livez"));
    EXPECT_EQ(clients.back().ReadResponse().status, 200);
  }
  RawClient over = RawClient::Connect(ports_[0]);
  const RawResponse r = over.ReadResponse();
  EXPECT_EQ(r.status, 503);
  EXPECT_TRUE(r.whole);
  EXPECT_EQ(edge_.counters.connections_refused.value(), 1u);
  clients[0].Close();
  EXPECT_TRUE(edge_.Eventually([&] { return front_->connections() == 2; }));
  RawClient again = RawClient::Connect(ports_[0]);
  again.Send(edge_.Get("/livez"));
  EXPECT_EQ(again.ReadResponse().status, 200);
}

TEST_F(FrontTest, DrainingAcceptsNoMore) {
  Listen();
  RawClient open = RawClient::Connect(ports_[0]);
  open.Send(edge_.Get("/livez"));
  EXPECT_EQ(open.ReadResponse().status, 200);
  edge_.OnLoop([&] { front_->StartDraining(); });
  EXPECT_EQ(open.ReadToEnd(), "");
  RawClient late = RawClient::Connect(ports_[0]);
  EXPECT_EQ(late.fd(), -1);
}

TEST_F(FrontTest, AWrongHostOrATakenPortIsNamed) {
  Listen();
  edge_.OnLoop([&] {
    FrontOptions taken;
    taken.ports = {{ports_[0], "--port"}};
    Front second(edge_.executor.context(), edge_.services, taken, nullptr);
    const std::string message = StatusMessage(second.Listen());
    EXPECT_NE(message.find("--port"), std::string::npos);
    EXPECT_NE(message.find(std::to_string(ports_[0])), std::string::npos);
    FrontOptions wrong;
    wrong.host = "no address";
    wrong.ports = {{0, "--port"}};
    Front third(edge_.executor.context(), edge_.services, wrong, nullptr);
    EXPECT_NE(StatusMessage(third.Listen()).find("--host"), std::string::npos);
  });
}

TEST(IsLoopback, KnowsTheLoopbacks) {
  EXPECT_TRUE(IsLoopback("127.0.0.1"));
  EXPECT_TRUE(IsLoopback("127.8.9.1"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_TRUE(IsLoopback("localhost"));
  EXPECT_FALSE(IsLoopback("0.0.0.0"));
  EXPECT_FALSE(IsLoopback("::"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
}

}  // namespace
}  // namespace quire
