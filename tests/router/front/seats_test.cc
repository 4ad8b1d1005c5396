#include "router/front/seats.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

struct Client {
  std::shared_ptr<ClientSeat> seat = std::make_shared<ClientSeat>();
  Seats::Number number = 0;
  bool closed = false;
};

class SeatsTest : public testing::Test {
 protected:
  Client& Come(Seats& seats, const std::string& address) {
    clients.push_back(std::make_unique<Client>());
    Client& client = *clients.back();
    client.seat->address = *ClientAddress::Parse(address);
    client.number = seats.Sit(client.seat, [&client] { client.closed = true; });
    return client;
  }
  std::vector<std::unique_ptr<Client>> clients;
};

TEST_F(SeatsTest, WhoShowsNoKeyGivesWayAndWhoDidStays) {
  Seats seats({.places = 3, .per_address = 100});
  Client& keyed = Come(seats, "192.0.2.1");
  keyed.seat->has_shown_key = true;
  Client& watching = Come(seats, "192.0.2.1");
  watching.seat->at_work = [] { return false; };
  Client& working = Come(seats, "192.0.2.1");
  working.seat->at_work = [] { return true; };
  Client& next = Come(seats, "192.0.2.2");
  EXPECT_TRUE(watching.closed);
  EXPECT_FALSE(next.seat->probes_only);
  next.seat->has_shown_key = true;
  for (size_t i = 0; i < kProbePlaces; ++i) {
    EXPECT_TRUE(Come(seats, "192.0.2.3").seat->probes_only);
  }
  Client& first_probe = *clients[4];
  EXPECT_FALSE(first_probe.closed);
  EXPECT_TRUE(Come(seats, "192.0.2.4").seat->probes_only);
  EXPECT_TRUE(first_probe.closed) << "of probes the oldest gives way";
  EXPECT_FALSE(keyed.closed || working.closed || next.closed);
  seats.Leave(keyed.number);
  EXPECT_FALSE(Come(seats, "192.0.2.5").seat->probes_only);
}

// However many come from one address, who holds a key elsewhere finds a place.
TEST_F(SeatsTest, AFloodWithoutKeysKeepsNobodyOut) {
  Seats seats({.places = 16});
  for (int i = 0; i < 100; ++i) {
    Come(seats, "192.0.2.1");
    Come(seats, "10.0.0." + std::to_string(i));
    if (i % 10 != 0) continue;
    Client& honest = Come(seats, "198.51.100.1");
    ASSERT_NE(honest.number, 0u);
    EXPECT_FALSE(honest.seat->probes_only);
    honest.seat->has_shown_key = true;
    seats.Leave(honest.number);
  }
}

TEST_F(SeatsTest, AddressesHaveAShareAndProxiesHaveNone) {
  const TrustedProxies proxies = *TrustedProxies::Parse({"10.0.0.0/8"});
  Seats seats({.places = 8, .proxies = &proxies});
  for (size_t i = 0; i < 8 / kShareOfOneAddress; ++i) {
    EXPECT_NE(Come(seats, "192.0.2.1").number, 0u);
    EXPECT_NE(Come(seats, "2001:db8::" + std::to_string(i + 1)).number, 0u);
  }
  EXPECT_EQ(Come(seats, "192.0.2.1").number, 0u);
  EXPECT_EQ(Come(seats, "2001:db8::77").number, 0u) << "one /64 is one client";
  for (int i = 0; i < 3; ++i) EXPECT_NE(Come(seats, "10.0.0.1").number, 0u);
  Client& named = Come(seats, "10.0.0.1");
  EXPECT_FALSE(seats.Name(named.number, *ClientAddress::Parse("192.0.2.1")));
  seats.Leave(named.number);
  seats.Leave(clients[0]->number);
  Client& again = Come(seats, "10.0.0.1");
  EXPECT_TRUE(seats.Name(again.number, *ClientAddress::Parse("192.0.2.1")));
  EXPECT_EQ(Come(seats, "192.0.2.1").number, 0u);
}

TEST_F(SeatsTest, OnLoopbackAnyNumberComesFromOneAddress) {
  Seats seats({.places = 8});
  for (int i = 0; i < 8; ++i) EXPECT_NE(Come(seats, "127.0.0.1").number, 0u);
}

}  // namespace
}  // namespace quire
