// Addresses of the internet, and those that a stranger may not lead a download to.
#include "common/client/public_address.h"

#include <gtest/gtest.h>

namespace quire::client {
namespace {

bool Public(const char* text) {
  const std::optional<ClientAddress> address = ClientAddress::Parse(text);
  EXPECT_TRUE(address) << text;
  return address && IsPublic(*address);
}

TEST(PublicAddress, TheInternetIsPublic) {
  for (const char* text :
       {"1.1.1.1",         "9.255.255.255",   "11.0.0.0",         "100.63.255.255",
        "100.128.0.0",     "126.255.255.255", "128.0.0.0",        "169.253.255.255",
        "169.255.0.0",     "172.15.255.255",  "172.32.0.0",       "192.167.255.255",
        "192.169.0.0",     "198.17.255.255",  "198.20.0.0",       "223.255.255.255",
        "2606:4700::1111", "2a00::1",         "64:ff9b::101:101", "2002:101:101::1"}) {
    EXPECT_TRUE(Public(text)) << text;
  }
}

TEST(PublicAddress, OnesOwnNetworksAreNot) {
  for (const char* text : {"0.0.0.0",
                           "10.0.0.0",
                           "10.255.255.255",
                           "100.64.0.0",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.0",
                           "172.31.255.255",
                           "192.168.0.1",
                           "198.18.0.0",
                           "198.19.255.255",
                           "224.0.0.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::7f00:1",
                           "fc00::1",
                           "fdff::1",
                           "fe80::1",
                           "ff02::1",
                           "100::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::a00:1",
                           "64:ff9b:1::1",
                           "2002:7f00:1::1",
                           "2001:db8::1",
                           "2001::1"}) {
    EXPECT_FALSE(Public(text)) << text;
  }
}

}  // namespace
}  // namespace quire::client
