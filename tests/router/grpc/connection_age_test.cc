// Connections that are left because of their age, so that clients find routers that are new.
#include <gtest/gtest.h>

#include <set>

#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

using wire::Call;
using wire::Frame;
using wire::WireClient;

constexpr Micros kAge = 100 * kMicrosPerSecond, kGrace = 20 * kMicrosPerSecond;
constexpr Micros kUnmet = 3600 * kMicrosPerSecond;

GrpcEdgeLimits Limits(Micros age, Micros grace) {
  GrpcEdgeLimits limits;
  limits.max_connection_age = age;
  limits.max_connection_age_grace = grace;
  limits.keep_alive = limits.idle_timeout = kUnmet;
  return limits;
}

TEST(ConnectionAge, AnOldConnectionIsLeftAndItsCallsGoOnForTheGrace) {
  WireClient client(Limits(kAge, kGrace));
  client.host->rng = nullptr;
  client.connection->Close();
  client.connection = std::make_unique<GrpcConnection>(*client.host, client.methods, client);
  client.connection->Start();  // without a spread: nine tenths
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  client.Say(Call(3));
  client.Wait(kAge * 9 / 10 - 5000);
  EXPECT_TRUE(client.last_streams.empty());
  EXPECT_EQ(client.counters.http2_connections_aged.value(), 0u);
  client.Wait(10'000);
  ASSERT_EQ(client.pings.size(), 1u);
  client.Say(Frame(wire::kPing, wire::kAck, 0, client.pings[0]));
  EXPECT_EQ(client.went_away, 0);
  EXPECT_EQ(client.counters.http2_connections_aged.value(), 1u);
  client.pipeline.live.begin()->second.sink->OnError({ApiCode::kInvalidArgument, "no", "", 0});
  client.pipeline.live.erase(client.pipeline.live.begin());
  client.Wait(kGrace - 20'000);
  EXPECT_EQ(client.answers[1].status(), "3") << "it has ended as it would have";
  EXPECT_EQ(client.pipeline.live.size(), 1u);
  EXPECT_FALSE(client.closed);
  client.Wait(20'000);
  EXPECT_EQ(client.answers[3].status(), "14");
  EXPECT_EQ(client.pipeline.cancelled.size(), 1u);
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(client.counters.http2_connections_aged.value(), 1u);
}

TEST(ConnectionAge, WithoutAGraceCallsTakeTheirTimeAndWithoutAnAgeNothingIsLeft) {
  for (const Micros age : {kAge, Micros{0}}) {
    WireClient client(Limits(age, 0));
    client.Hello();
    client.pipeline.mode = FakePipeline::Mode::kManual;
    client.Say(Call(1));
    client.Wait(20 * kAge);
    EXPECT_EQ(client.pipeline.live.size(), 1u);
    EXPECT_EQ(client.counters.http2_connections_aged.value(), age == 0 ? 0u : 1u);
  }
}

TEST(ConnectionAge, ConnectionsOfOneBirthdayAreLeftOneAfterTheOther) {
  WireClient client(Limits(kAge, 0));
  struct Mute final : GrpcConnection::Transport {
    void WantsToSend() override {}
    void GiveUp() override {}
  } mute;
  std::vector<std::unique_ptr<GrpcConnection>> connections;
  for (int i = 0; i < 40; ++i) {
    connections.push_back(std::make_unique<GrpcConnection>(*client.host, client.methods, mute));
    connections.back()->Start();
  }
  const auto aged = [&] { return client.counters.http2_connections_aged.value(); };
  client.world.RunUntil(kAge * 9 / 10 - 1);
  EXPECT_EQ(aged(), 0u);
  std::set<uint64_t> seen;
  for (Micros now = kAge * 9 / 10; now <= kAge * 11 / 10; now += kMicrosPerSecond) {
    client.world.RunUntil(now);
    seen.insert(aged());
  }
  client.world.RunUntil(2 * kAge);
  EXPECT_EQ(aged(), 41u);
  EXPECT_GE(seen.size(), 10u);
  for (const auto& connection : connections) connection->Close();
}

}  // namespace
}  // namespace quire
