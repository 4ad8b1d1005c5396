#include "common/client_address.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

ClientAddress At(std::string_view text) { return *ClientAddress::Parse(text); }

TEST(ClientAddress, IsReadInEachOfItsForms) {
  EXPECT_EQ(At("192.0.2.1"), At("::ffff:192.0.2.1"));
  EXPECT_EQ(At("192.0.2.1"), At("192.0.2.1:8080"));
  EXPECT_EQ(At("2001:db8::1"), At("[2001:db8::1]:8080"));
  EXPECT_NE(At("2001:db8::1"), At("2001:db8::2"));
  EXPECT_EQ(At("2001:db8::1").Share(), At("2001:db8::2").Share());
  EXPECT_NE(At("192.0.2.1").Share(), At("192.0.2.2").Share());
  for (const char* wrong : {"", "x", "192.0.2", "192.0.2.256", "[::1", "2001:db8::1::2"}) {
    EXPECT_FALSE(ClientAddress::Parse(wrong)) << wrong;
  }
  EXPECT_TRUE(At("127.8.9.1").loopback() && At("::1").loopback());
  EXPECT_FALSE(At("192.0.2.1").loopback() || At("2001:db8::1").loopback());
}

TEST(AddressRange, HoldsItsAddressesAlone) {
  EXPECT_TRUE(AddressRange::Parse("10.0.0.0/8")->Contains(At("10.255.0.1")));
  EXPECT_FALSE(AddressRange::Parse("10.0.0.0/8")->Contains(At("11.0.0.1")));
  EXPECT_TRUE(AddressRange::Parse("192.0.2.7")->Contains(At("192.0.2.7")));
  EXPECT_FALSE(AddressRange::Parse("192.0.2.7")->Contains(At("192.0.2.6")));
  EXPECT_TRUE(AddressRange::Parse("2001:db8::/33")->Contains(At("2001:db8:7fff::1")));
  EXPECT_FALSE(AddressRange::Parse("2001:db8::/33")->Contains(At("2001:db8:8000::1")));
  EXPECT_TRUE(AddressRange::Parse("0.0.0.0/0")->Contains(At("203.0.113.9")));
  EXPECT_FALSE(AddressRange::Parse("0.0.0.0/0")->Contains(At("2001:db8::1")));
  for (const char* wrong : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129", "any"}) {
    EXPECT_FALSE(AddressRange::Parse(wrong).ok()) << wrong;
  }
}

TEST(TrustedProxies, TakeTheLastAddressThatIsNoneOfThem) {
  const TrustedProxies proxies = *TrustedProxies::Parse({"10.0.0.0/8", "::1"});
  const ClientAddress proxy = At("10.1.1.1");
  EXPECT_EQ(proxies.ClientOf(proxy, "203.0.113.9, 192.0.2.1"), At("192.0.2.1"));
  EXPECT_EQ(proxies.ClientOf(proxy, "203.0.113.9, 192.0.2.1 , 10.2.2.2"), At("192.0.2.1"));
  EXPECT_EQ(proxies.ClientOf(proxy, "10.3.3.3,10.2.2.2"), At("10.3.3.3"));
  EXPECT_EQ(proxies.ClientOf(proxy, ""), proxy);
  EXPECT_EQ(proxies.ClientOf(proxy, "192.0.2.1, nonsense"), proxy);
  EXPECT_EQ(proxies.ClientOf(At("198.51.100.1"), "192.0.2.1"), At("198.51.100.1"))
      << "a peer that is no proxy names no client";
}

}  // namespace
}  // namespace quire
