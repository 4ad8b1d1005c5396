// The system's resolver: real threads, a real loop.
#include "router/discovery/resolver.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/runtime/asio_executor.h"
#include "router/discovery/fetch_asio.h"

namespace quire {
namespace {

TEST(SystemResolver, ResolvesANumericAddressAndRefusesNonsense) {
  AsioExecutor executor;
  const std::unique_ptr<Resolver> resolver = MakeSystemResolver(executor);
  int answers = 0;
  const auto count = [&] {
    if (++answers == 2) executor.Stop();
  };
  resolver->Resolve("127.0.0.1", [&](absl::StatusOr<std::vector<std::string>> addresses) {
    ASSERT_TRUE(addresses.ok());
    EXPECT_EQ(*addresses, std::vector<std::string>{"127.0.0.1"});
    count();
  });
  resolver->Resolve("no such name", [&](absl::StatusOr<std::vector<std::string>> addresses) {
    EXPECT_TRUE(absl::IsUnavailable(addresses.status()));
    count();
  });
  executor.Run();
  EXPECT_EQ(answers, 2);
}

TEST(SystemResolver, ForgetsWhatWasAskedWhenItGoes) {
  AsioExecutor executor;
  std::unique_ptr<Resolver> resolver = MakeSystemResolver(executor);
  for (int i = 0; i < kMaxLookups; ++i) {
    resolver->Resolve("127.0.0.1", [](const absl::StatusOr<std::vector<std::string>>&) {});
  }
  resolver.reset();  // threads that are not done yet find nobody
}

TEST(ServerUrl, IsSchemeHostAndPort) {
  for (const char* good : {"https://kubernetes.default.svc", "http://127.0.0.1:8001",
                           "https://[::1]:6443/", "https://[::1]"}) {
    EXPECT_TRUE(CheckServerUrl(good).ok()) << good;
  }
  for (const char* bad : {"", "kubernetes", "ftp://a", "https://", "https://a:0", "https://a b",
                          "https://a/path", "https://a:99999", "https://a\r\nHost: b"}) {
    EXPECT_FALSE(CheckServerUrl(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace quire
