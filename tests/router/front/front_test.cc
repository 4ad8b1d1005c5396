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
      front_ = std::make_unique<Front>(
          edge_.executor.context(), edge_.services, options,
          [this](EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
                 const std::shared_ptr<ClientSeat>&) {
            adopted_.emplace(std::move(stream));
            adopted_bytes_ = std::move(first_bytes);
            on_closed_ = std::move(on_closed);
          });
      const absl::Status status = front_->Listen();
      ASSERT_TRUE(status.ok()) << StatusMessage(status);
      ports_ = front_->ports();
    });
    ASSERT_EQ(ports_.size(), 2u);
  }

  void TearDown() override {
    edge_.OnLoop([this] {
      front_.reset();
      adopted_.reset();
    });
  }

  size_t Connections() {
    size_t count = 0;
    edge_.OnLoop([&] { count = front_->connections(); });
    return count;
  }

  EdgeHarness edge_;
  std::optional<EdgeStream> adopted_;  // the last one
  std::string adopted_bytes_;          // that were read of it
  std::function<void()> on_closed_;
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
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.has_value(); }));
  EXPECT_TRUE(edge_.Eventually([&] {
    char buffer[64];
    EdgeStream::Error none_yet;
    adopted_bytes_.append(buffer, adopted_->Read(buffer, sizeof(buffer), none_yet));
    return adopted_bytes_ == kPreface;
  }));
}

TEST_F(FrontTest, AConnectionOfHttp2CountsUntilItIsSaidToBeClosed) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  client.Send(kPreface);
  ASSERT_TRUE(edge_.Eventually([&] { return adopted_.has_value(); }));
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
  edge_.OnLoop([&] { edge_.pipeline.mode = FakePipeline::Mode::kManual; });
  Listen(options);
  std::vector<RawClient> clients;
  for (size_t i = 0; i < 3; ++i) {
    clients.push_back(RawClient::Connect(ports_[i % 2]));
    clients.back().Send(edge_.Post("/v1/completions", R"({"prompt":"x"})"));
    ASSERT_TRUE(edge_.Eventually([&] { return edge_.pipeline.live.size() == i + 1; }));
  }
  RawClient over = RawClient::Connect(ports_[0]);
  over.Send(edge_.Get("/version"));
  const RawResponse r = over.ReadResponse();
  EXPECT_EQ(r.status, 503);
  EXPECT_TRUE(r.whole);
  EXPECT_EQ(edge_.counters.connections_refused.value(), 1u);
  EXPECT_EQ(edge_.counters.connections_gave_way.value(), 0u) << "all are at work";
  RawClient probe = RawClient::Connect(ports_[0]);
  probe.Send(edge_.Get("/livez"));
  EXPECT_EQ(probe.ReadResponse().status, 200) << "probes have places of their own";
  EXPECT_EQ(probe.ReadToEnd(), "") << "and leave them";
  clients[0].Close();
  ASSERT_TRUE(edge_.Eventually([&] { return edge_.pipeline.live.size() == 2; }));
  RawClient again = RawClient::Connect(ports_[0]);
  again.Send(edge_.Get("/version"));
  EXPECT_EQ(again.ReadResponse().status, 200);
}

TEST_F(FrontTest, AtTheLimitTheOldestIdleConnectionGivesWay) {
  FrontOptions options;
  options.max_connections = 3;
  edge_.OnLoop([&] { edge_.pipeline.mode = FakePipeline::Mode::kManual; });
  Listen(options);
  RawClient silent = RawClient::Connect(ports_[0]);
  ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 1; }));
  RawClient at_work = RawClient::Connect(ports_[0]);
  at_work.Send(edge_.Post("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(edge_.Eventually([&] { return edge_.pipeline.live.size() == 1; }));
  RawClient idle = RawClient::Connect(ports_[0]);
  idle.Send(edge_.Get("/version"));
  EXPECT_EQ(idle.ReadResponse().status, 200);
  std::optional<RawClient> filler;
  for (RawClient* who : {&silent, &idle}) {
    RawClient next = RawClient::Connect(ports_[0]);
    next.Send(edge_.Get("/version"));
    EXPECT_EQ(next.ReadResponse().status, 200);
    EXPECT_EQ(who->ReadToEnd(), "");
    who->Close();
    next.HalfClose();
    EXPECT_EQ(next.ReadToEnd(), "");
    ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 2; }));
    if (who == &silent) {  // the last place is taken again
      idle.Send(edge_.Get("/version"));
      EXPECT_EQ(idle.ReadResponse().status, 200);
      filler.emplace(RawClient::Connect(ports_[0]));
      filler->Send(edge_.Get("/version"));
      EXPECT_EQ(filler->ReadResponse().status, 200);
    }
  }
  edge_.OnLoop([&] {
    EXPECT_EQ(edge_.counters.connections_gave_way.value(), 2u);
    EXPECT_EQ(edge_.pipeline.live.size(), 1u);
  });
}

TEST_F(FrontTest, AnAddressAtItsShareIsServedAndOneMoreIsTold) {
  FrontOptions options;
  options.max_connections_per_address = 2;
  Listen(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(RawClient::Connect(ports_[0]));
    clients.back().Send(edge_.Get("/livez"));
    EXPECT_EQ(clients.back().ReadResponse().status, 200);
  }
  RawClient over = RawClient::Connect(ports_[0]);
  EXPECT_EQ(over.ReadResponse().status, 503);
  edge_.OnLoop([&] { EXPECT_EQ(edge_.counters.connections_of_address_refused.value(), 1u); });
  clients[0].Close();
  ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 1; }));
  RawClient again = RawClient::Connect(ports_[0]);
  again.Send(edge_.Get("/livez"));
  EXPECT_EQ(again.ReadResponse().status, 200);
}

// Of a trusted proxy: its own connections have no share, those that it names have, and what it
// sends byte by byte says the same.
TEST_F(FrontTest, AProxySaysWhomItSpeaksFor) {
  const TrustedProxies proxies = *TrustedProxies::Parse({"127.0.0.0/8"});
  FrontOptions options;
  options.max_connections_per_address = 1;
  options.proxies = &proxies;
  Listen(options);
  const auto ask = [&](const std::string& header, bool one_by_one) {
    RawClient client = RawClient::Connect(ports_[0]);
    const std::string bytes = header + edge_.Get("/version");
    const size_t step = one_by_one ? 1 : bytes.size();
    for (size_t i = 0; i < bytes.size(); i += step) {
      client.Send(std::string_view(bytes).substr(i, step));
      if (one_by_one) edge_.OnLoop([] {});
    }
    const int status = client.ReadResponse().status;
    return std::pair(status, std::move(client));
  };
  const std::string text = "PROXY TCP4 192.0.2.1 198.51.100.1 5000 80\r\n";
  const std::string binary(
      "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x02\xc6\x33\x64\x01\x13\x88\0\x50", 28);
  for (const bool one_by_one : {false, true}) {
    auto [status, first] = ask(text, one_by_one);
    EXPECT_EQ(status, 200);
    EXPECT_EQ(ask(text, false).first, 503) << "192.0.2.1 has its share";
    auto [other_status, second] = ask(binary, one_by_one);
    EXPECT_EQ(other_status, 200) << "192.0.2.2 has one, too";
    EXPECT_EQ(ask(binary, false).first, 503);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ask("", one_by_one).first, 200) << "the proxy's own";
    EXPECT_EQ(ask("PROXY UNKNOWN\r\n", one_by_one).first, 200);
    first.Close();
    second.Close();
    ASSERT_TRUE(edge_.Eventually([&] { return front_->connections() == 0; }));
  }
  for (const std::string& broken :
       {std::string("PROXY TCP4 x y 1 2\r\n"), "PROXY " + std::string(120, 'x'),
        binary.substr(0, 12) + "\x31" + binary.substr(13)}) {
    EXPECT_EQ(ask(broken, false).first, 0);
  }
  edge_.OnLoop([&] { EXPECT_EQ(edge_.counters.proxy_headers_broken.value(), 3u); });
}

TEST_F(FrontTest, WhoIsNoTrustedProxyNamesNobody) {
  Listen();
  RawClient client = RawClient::Connect(ports_[0]);
  client.Send("PROXY TCP4 192.0.2.1 198.51.100.1 5000 80\r\n" + edge_.Get("/version"));
  EXPECT_EQ(client.ReadResponse().status, 505);
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

}  // namespace
}  // namespace quire
