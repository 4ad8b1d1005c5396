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
                                       [this](int fd) { adopted_.push_back(fd); });
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
  std::vector<int> adopted_;
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
  RawClient inner(adopted_[0]);
  EXPECT_EQ(inner.ReadUntil(kPreface), kPreface);
}

TEST_F(FrontTest, Http2BytesGoBothWaysUntilEitherEnds) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  const std::string data_frame = std::string("\0\x40\0\0\0\0\0\0\1", 9) + std::string(0x4000, 'd');
  client.Send(kPreface);
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.size() == 1; }));
  RawClient inner(adopted_[0]);
  EXPECT_EQ(inner.ReadUntil(kPreface), kPreface);
  // More than all buffers hold: each side waits for the other.
  std::thread sender([&] {
    for (int i = 0; i < 500; ++i) client.Send(data_frame);
    client.HalfClose();
  });
  size_t got = inner.ReadToEnd().size();
  sender.join();
  EXPECT_EQ(got, 500 * data_frame.size());
  std::thread answerer([&] {
    for (int i = 0; i < 500; ++i) inner.Send(data_frame);
    inner.Close();
  });
  got = client.ReadToEnd().size();
  answerer.join();
  EXPECT_EQ(got, 500 * data_frame.size());
  EXPECT_TRUE(edge_.Eventually([&] { return front_->connections() == 0; }));
}

TEST_F(FrontTest, TheGuardClosesAConnectionPastARate) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  client.Send(kPreface);
  std::string pings;
  for (int i = 0; i < 1000; ++i) pings += std::string("\0\0\x08\x06\0\0\0\0\0", 9) + "12345678";
  client.Send(pings);
  EXPECT_TRUE(edge_.Eventually([&] { return front_->connections() == 0 && adopted_.size() == 1; }));
  EXPECT_EQ(edge_.counters.http2_guard_closed.at("pings")->value(), 1u);
  EXPECT_EQ(edge_.counters.http2_guard_closed.at("resets")->value(), 0u);
  RawClient inner(adopted_[0]);
  EXPECT_LT(inner.ReadToEnd().size(), kPreface.size() + pings.size());
}

// As a Go client does it through a stream of a thousand tokens.
TEST_F(FrontTest, AClientThatPingsForEachDataFrameIsServed) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  client.Send(kPreface);
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.size() == 1; }));
  RawClient inner(adopted_[0]);
  inner.ReadUntil(kPreface);
  const std::string ping = std::string("\0\0\x08\x06\0\0\0\0\0", 9) + "12345678";
  const std::string data = std::string("\0\0\5\0\0\0\0\0\1", 9) + "token";
  for (int i = 0; i < 1000; ++i) {
    inner.Send(data);
    ASSERT_EQ(client.ReadUntil("token"), data) << i;
    client.Send(ping);
    ASSERT_EQ(inner.ReadUntil("12345678"), ping) << i;
  }
  EXPECT_EQ(edge_.counters.http2_guard_closed.at("pings")->value(), 0u);
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

// gRPC would neither serve nor close it.
TEST_F(FrontTest, AClientOfHttp2ThatSpeaksUpAsThePortsCloseIsClosed) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 1; }));
  edge_.OnLoop([&] { front_->StartDraining(); });
  client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(client.ReadToEnd(), "");
  edge_.OnLoop([&] { EXPECT_EQ(front_->connections(), 0u); });
}

TEST_F(FrontTest, AbandonedStreamsAtTheLimitPassAndOneMoreHoldsTheirMakerBack) {
  FrontOptions options;
  options.guard.abandoned_streams = {0.01, 2};
  Listen(options);
  RawClient client = RawClient::Connect(ports_[0]);
  const auto stream = [](char number) {  // opened, and reset
    return std::string("\0\0\1\1\4\0\0\0", 8) + number + '\x82' +
           std::string("\0\0\4\3\0\0\0\0", 8) + number + std::string(4, '\0');
  };
  const std::string ping = std::string("\0\0\x08\x06\0\0\0\0\0", 9) + "12345678";
  client.Send(kPreface + stream(1) + stream(3));
  ASSERT_TRUE(edge_.Eventually([this] { return adopted_.size() == 1; }));
  RawClient inner(adopted_[0]);
  inner.ReadUntil(stream(3));
  client.Send(ping);
  inner.ReadUntil(ping);
  edge_.OnLoop([this] { EXPECT_EQ(edge_.counters.http2_pauses.value(), 0u); });
  client.Send(stream(5));
  inner.ReadUntil(stream(5));
  EXPECT_TRUE(edge_.Eventually([this] { return edge_.counters.http2_pauses.value() == 1; }));
}

TEST_F(FrontTest, StreamsAtTheLimitPassAndOneMoreIsCounted) {
  FrontOptions options;
  options.guard.max_streams = 3;
  Listen(options);
  RawClient client = RawClient::Connect(ports_[0]);
  const auto headers = [](char stream) {  // a HEADERS frame of one byte, with END_HEADERS
    return std::string("\0\0\1\1\4\0\0\0", 8) + stream + '\x82';
  };
  client.Send(kPreface);
  for (const char stream : {1, 3, 5}) client.Send(headers(stream));
  ASSERT_TRUE(edge_.Eventually([this] { return adopted_.size() == 1; }));
  RawClient inner(adopted_[0]);
  EXPECT_NE(inner.ReadUntil(headers(5)).find(headers(1)), std::string::npos);
  edge_.OnLoop([this] { EXPECT_EQ(edge_.counters.http2_streams_over_limit.value(), 0u); });
  client.Send(headers(7));
  inner.ReadUntil(headers(7));
  edge_.OnLoop([this] { EXPECT_EQ(edge_.counters.http2_streams_over_limit.value(), 1u); });
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
    Front second(edge_.executor.context(), edge_.services, taken, [](int) {});
    const std::string message = StatusMessage(second.Listen());
    EXPECT_NE(message.find("--port"), std::string::npos);
    EXPECT_NE(message.find(std::to_string(ports_[0])), std::string::npos);
    FrontOptions wrong;
    wrong.host = "no address";
    wrong.ports = {{0, "--port"}};
    Front third(edge_.executor.context(), edge_.services, wrong, [](int) {});
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
