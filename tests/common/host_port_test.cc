#include "common/host_port.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(HostPort, ReadsBothForms) {
  EXPECT_EQ(ParseHostPort("10.0.0.1:80")->host, "10.0.0.1");
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("host:65535")->port, 65535);
  for (const char* bad : {"", ":", "host", ":80", "host:", "host:x", "host:65536", "host:-1",
                          "::1:80", "[]:80", "host:80 "}) {
    EXPECT_FALSE(ParseHostPort(bad).ok()) << bad;
  }
}

TEST(HostPort, ATargetHasAPort) {
  for (const char* good : {"127.0.0.1:9000", "[::1]:1", "worker-0.quire.svc:65535", "a_b:80"}) {
    EXPECT_TRUE(CheckTarget(good).ok()) << good;
  }
  for (const char* bad : {"", ":9000", "host", "host:", "host:0", "host:65536", "host:1x",
                          "::1:9000", "[]:1", "a b:1", "a\n:1", "[::1:1", "host:-1", "host:+1"}) {
    EXPECT_FALSE(CheckTarget(bad).ok()) << bad;
  }
  EXPECT_TRUE(CheckTarget(std::string(kMaxTargetBytes - 2, 'a') + ":1").ok());
  EXPECT_FALSE(CheckTarget(std::string(kMaxTargetBytes - 1, 'a') + ":1").ok());
}

TEST(HostPort, JoinsWithBracketsWhereNeeded) {
  EXPECT_EQ(JoinHostPort("::1", 9), "[::1]:9");
  EXPECT_EQ(JoinHostPort("h", 5), "h:5");
}

TEST(IsLoopback, KnowsTheLoopbacks) {
  for (const char* loopback : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(loopback)) << loopback;
  }
  for (const char* other : {"0.0.0.0", "::", "10.0.0.1", "127.example.com", "127.", ""}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

}  // namespace
}  // namespace quire
