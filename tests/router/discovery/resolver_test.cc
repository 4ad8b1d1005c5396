// The system's resolver: real threads, a real loop.
#include "router/discovery/resolver.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/runtime/asio_executor.h"
#include "router/discovery/fetch_asio.h"

namespace quire {
namespace {

using Targets = std::vector<std::string>;

TEST(SystemResolver, ResolvesANumericAddressAndRefusesNonsense) {
  AsioExecutor executor;
  const std::unique_ptr<Resolver> resolver = MakeThreadResolver(executor, LookUpBySystem);
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

// Lookups that hang until the test lets them go, whatever becomes of the resolver.
struct Gate {
  void Open() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      open = true;
    }
    changed.notify_all();
  }
  Addresses Wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return open; });
    return Targets{"10.0.0.1"};
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
};

TEST(ThreadResolver, AsManyNamesAsTheLimitMayHangAndNotOneMore) {
  AsioExecutor executor;
  const auto gate = std::make_shared<Gate>();
  const std::unique_ptr<Resolver> resolver =
      MakeThreadResolver(executor, [gate](const std::string&) { return gate->Wait(); });
  size_t found = 0;
  for (size_t i = 0; i < kMaxLookups; ++i) {
    resolver->Resolve("w" + std::to_string(i), [&](const Addresses& addresses) {
      EXPECT_TRUE(addresses.ok());
      if (++found == kMaxLookups) executor.Stop();
    });
  }
  resolver->Resolve("w", [&](const Addresses& addresses) {
    EXPECT_TRUE(absl::IsResourceExhausted(addresses.status()));
    gate->Open();
  });
  executor.Run();
  EXPECT_EQ(found, kMaxLookups);
}

// A link that is dialled again and again, and a source that gives a lookup up, ask again each time.
TEST(ThreadResolver, ANameThatHangsTakesOnePlaceHoweverOftenItIsAskedFor) {
  AsioExecutor executor;
  const auto gate = std::make_shared<Gate>();
  const std::unique_ptr<Resolver> resolver =
      MakeThreadResolver(executor, [gate](const std::string& host) {
        return host == "hangs" ? gate->Wait() : Targets{"10.0.0.2"};
      });
  size_t found = 0;
  for (size_t i = 0; i < kMaxWaitersPerName; ++i) {
    resolver->Resolve("hangs", [&](const Addresses& addresses) {
      EXPECT_EQ(addresses.value(), Targets{"10.0.0.1"});
      if (++found == kMaxWaitersPerName) executor.Stop();
    });
  }
  bool refused = false;
  resolver->Resolve("hangs", [&](const Addresses& addresses) {
    refused = absl::IsResourceExhausted(addresses.status());
  });
  resolver->Resolve("other", [&](const Addresses& addresses) {
    EXPECT_TRUE(addresses.ok()) << addresses.status();
    EXPECT_EQ(found, 0u);
    gate->Open();
  });
  executor.Run();
  EXPECT_EQ(found, kMaxWaitersPerName);
  EXPECT_TRUE(refused);
}

TEST(ThreadResolver, ALookupThatComesBackLateFindsNobody) {
  AsioExecutor executor;
  const auto gate = std::make_shared<Gate>();
  std::unique_ptr<Resolver> resolver =
      MakeThreadResolver(executor, [gate](const std::string&) { return gate->Wait(); });
  bool answered = false;
  resolver->Resolve("w", [&](const Addresses&) { answered = true; });
  resolver.reset();
  gate->Open();
  executor.Post([&] { executor.Stop(); });
  executor.Run();
  EXPECT_FALSE(answered);
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
