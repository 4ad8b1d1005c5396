#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

#include "common/runtime/asio_executor.h"

namespace quire {
namespace {

TEST(AsioExecutor, RunsPostedWorkAndTimersInOrder) {
  AsioExecutor executor;
  std::string order;
  const Micros now = executor.clock().Now();
  executor.PostAt(now + 3000, [&] {
    order += 'c';
    executor.Stop();
  });
  executor.PostAt(now + 1000, [&] { order += 'b'; });
  executor.Post([&] { order += 'a'; });
  executor.Run();
  EXPECT_EQ(order, "abc");
}

TEST(AsioExecutor, ACancelledTimerDoesNotRun) {
  AsioExecutor executor;
  bool ran = false;
  executor.Post([&] {
    const TimerId timer = executor.PostAt(executor.clock().Now() + 500, [&] { ran = true; });
    EXPECT_TRUE(executor.Cancel(timer));
    EXPECT_FALSE(executor.Cancel(timer));
    executor.PostAt(executor.clock().Now() + 2000, [&] { executor.Stop(); });
  });
  executor.Run();
  EXPECT_FALSE(ran);
}

TEST(AsioExecutor, TakesWorkFromOtherThreads) {
  AsioExecutor executor;
  int count = 0;  // touched on the loop only
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) executor.Post([&] { ++count; });
    executor.PostAt(executor.clock().Now(), [&] { executor.Stop(); });
  });
  executor.Run();
  other.join();
  EXPECT_EQ(count, 1000);
}

TEST(AsioExecutor, ABellRungSeveralTimesCountsOnceUntilItIsHeard) {
  AsioExecutor executor;
  int heard = 0;
  std::function<void()> bell;
  bell = executor.MakeBell([&] {
    if (++heard == 1) {
      bell();  // what comes from here on is another ring
      bell();
    } else {
      executor.Stop();
    }
  });
  std::thread ringer([&] {
    for (int i = 0; i < 100; ++i) bell();
  });
  ringer.join();
  EXPECT_EQ(heard, 0);
  executor.Run();
  EXPECT_EQ(heard, 2);
}

TEST(AsioExecutor, ABellThatNobodyHearsGoesWithTheExecutor) {
  AsioExecutor executor;
  const auto bell = executor.MakeBell([] { FAIL() << "nobody runs the loop"; });
  bell();
}

TEST(ThreadBackground, RefusesWhenItsQueueIsFullAndReportsBackOnTheExecutor) {
  AsioExecutor executor;
  ThreadBackground background(executor, 1, 2);
  std::promise<void> started, release;
  std::shared_future<void> gate = release.get_future().share();
  int done = 0;
  const auto finish = [&] {
    if (++done == 3) executor.Stop();
  };
  ASSERT_TRUE(background.Run(
      [&] {
        started.set_value();
        gate.wait();
      },
      finish));
  started.get_future().wait();
  EXPECT_TRUE(background.Run([] {}, finish));
  EXPECT_TRUE(background.Run([] {}, finish));
  EXPECT_FALSE(background.Run([] {}, finish));
  release.set_value();
  executor.Run();
  EXPECT_EQ(done, 3);
}

TEST(RealFiles, ReadsWithinTheLimitAndNamesThePath) {
  char path[] = "/tmp/quire_files_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "12345", 5), 5);
  close(fd);
  RealFiles files;
  EXPECT_EQ(*files.Read(path, 5), "12345");
  EXPECT_EQ(files.Read(path, 4).status().code(), absl::StatusCode::kResourceExhausted);
  std::remove(path);
  const auto missing = files.Read(path, 5);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(StatusMessage(missing.status()).find(path), std::string::npos);
}

}  // namespace
}  // namespace quire
