#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "common/runtime/asio_executor.h"
#include "common/runtime/virtual_runtime.h"

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

TEST(AsioExecutor, ATimerWaitsForItsTimeWhateverWasSetAndCancelledAroundIt) {
  AsioExecutor executor;
  std::string order;
  Micros ran_at = 0;
  const Micros due = executor.clock().Now() + 20'000;
  executor.Post([&] {
    executor.PostAt(due + 1000, [&] { executor.Stop(); });
    executor.PostAt(due, [&] {
      ran_at = executor.clock().Now();
      order += 'a';
    });
    executor.PostAt(due, [&] { order += 'b'; });
    // The first of all, which is never due: the next ones are neither early nor lost.
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(executor.Cancel(executor.PostAt(due - 15'000 + i, [&] { order += '!'; })));
    }
  });
  executor.Run();
  EXPECT_EQ(order, "ab") << "equal times run in the order in which they were set";
  EXPECT_GE(ran_at, due);
}

TEST(AsioExecutor, ATimerMayCancelAnotherThatIsDueAndWhatItSetsRunsAfterOtherWork) {
  AsioExecutor executor;
  std::string order;
  TimerId second = 0;
  executor.Post([&] {
    const Micros now = executor.clock().Now();
    executor.PostAt(now, [&] {
      order += 'a';
      EXPECT_TRUE(executor.Cancel(second));
      executor.Post([&] { order += 'b'; });
      executor.PostAt(0, [&] {
        order += 'c';
        executor.Stop();
      });
    });
    second = executor.PostAt(now, [&] { order += '!'; });
  });
  executor.Run();
  EXPECT_EQ(order, "abc");
}

TEST(AsioExecutor, WhatATimerHoldsMayCancelOthersWhenTheExecutorEnds) {
  TimerId other = 0;
  {
    AsioExecutor executor;
    executor.Post([&] {
      const Micros later = executor.clock().Now() + 60 * kMicrosPerSecond;
      other = executor.PostAt(later, [] {});
      const auto held = std::shared_ptr<int>(new int(0), [&](const int* number) {
        EXPECT_FALSE(executor.Cancel(other));
        other = 0;
        delete number;
      });
      executor.PostAt(later, [held] {});
      executor.Stop();
    });
    executor.Run();
    EXPECT_NE(other, 0u);
  }
  EXPECT_EQ(other, 0u);
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
  const auto bell = executor.MakeBell([] { FAIL() << "no thread runs the loop"; });
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

TEST(ThreadBackground, OnceStoppedItRunsNothingAndHasLetGoOfAll) {
  AsioExecutor executor;
  ThreadBackground background(executor, 1, 10);
  std::promise<void> started;
  bool ended = false;
  ASSERT_TRUE(background.Run(
      [&] {
        started.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ended = true;
      },
      [] {}));
  started.get_future().wait();
  const auto queued = std::make_shared<int>(0);
  ASSERT_TRUE(background.Run([queued] { FAIL() << "it is dropped"; }, [queued] {}));
  background.Stop();
  EXPECT_TRUE(ended) << "what runs is waited for";
  EXPECT_EQ(queued.use_count(), 1);
  EXPECT_FALSE(background.Run([] {}, [] {}));
  background.Stop();
}

// Looks, when it is given something, whether `held` is still there.
class Witness final : public Executor {
 public:
  void Post(std::function<void()>) override { was_held.set_value(!held.expired()); }
  TimerId PostAt(Micros, std::function<void()>) override { return 0; }
  bool Cancel(TimerId) override { return false; }
  const Clock& clock() const override { return clock_; }

  std::weak_ptr<int> held;
  std::promise<bool> was_held;

 private:
  RealClock clock_;
};

// One tenant's large work may be long; others' small work does not wait for its end.
TEST(ThreadBackground, LargeWorkLeavesAThreadForWhatIsSmall) {
  AsioExecutor executor;
  ThreadBackground background(executor, 2, WorkLimits{});
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  int ended = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(background.RunFor(
        {"a", 1 << 20},
        [released] {
          released.wait();
          std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it is not over in no time
        },
        [&] { ended += 1; }));
  }
  bool heard = false;
  ASSERT_TRUE(background.RunFor(
      {"b", 10}, [] {},
      [&] {
        heard = true;
        EXPECT_EQ(ended, 0);
        release.set_value();
      }));
  background.RunFor(
      {"z", 1 << 20}, [] {},
      [&] {
        EXPECT_TRUE(heard);
        EXPECT_LT(ended, 4) << "its turn comes before the rest of those who had much";
        ended += 10;
      });
  executor.PostAt(executor.clock().Now() + 10'000'000, [&] { executor.Stop(); });
  std::function<void()> look = [&] {
    if (ended == 14) return executor.Stop();
    executor.PostAt(executor.clock().Now() + 1000, look);
  };
  executor.Post(look);
  executor.Run();
  EXPECT_TRUE(heard);
  EXPECT_EQ(ended, 14);
}

TEST(ThreadBackground, WhatIsCancelledIsNotBegunAndIsReported) {
  AsioExecutor executor;
  ThreadBackground background(executor, 1, WorkLimits{});
  std::promise<void> release;
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  bool begun = false, reported = false;
  background.RunFor(
      {"a", 1}, [&] { release.get_future().wait(); }, [] {});
  background.RunFor(
      {"a", 1, cancelled}, [&] { begun = true; },
      [&] {
        reported = true;
        executor.Stop();
      });
  *cancelled = true;
  release.set_value();
  executor.Run();
  EXPECT_TRUE(reported);
  EXPECT_FALSE(begun);
}

TEST(ThreadBackground, WhatWorkHoldsIsLetGoBeforeItIsReported) {
  Witness executor;
  ThreadBackground background(executor, 1, 1);
  auto token = std::make_shared<int>(0);
  executor.held = token;
  ASSERT_TRUE(background.Run([token = std::move(token)] {}, [] {}));
  EXPECT_FALSE(executor.was_held.get_future().get());
}

// The generator of SplitMix64 is a bijection of its state, which grows by a constant: one number
// gives away all that follow.
uint64_t StateOfSplitMix64(uint64_t z) {
  const auto unshift = [](uint64_t value, int bits) {
    uint64_t x = value;
    for (int known = bits; known < 64; known += bits) x = value ^ (x >> bits);
    return x;
  };
  const auto inverse = [](uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  z = unshift(z, 31) * inverse(0x94D049BB133111EBull);
  z = unshift(z, 27) * inverse(0xBF58476D1CE4E5B9ull);
  return unshift(z, 30);
}

TEST(RealRng, ANumberDoesNotTellTheNext) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
  VirtualRng foretold(1);
  const uint64_t first = foretold.Next();
  ASSERT_EQ(StateOfSplitMix64(foretold.Next()) - StateOfSplitMix64(first), kStep)
      << "the test knows how to foretell";
  RealRng rng;
  uint64_t last = rng.Next();
  for (int i = 0; i < 1000; ++i) {
    const uint64_t next = rng.Next();
    EXPECT_NE(StateOfSplitMix64(next) - StateOfSplitMix64(last), kStep);
    last = next;
  }
}

TEST(RealRng, NoNumberComesTwice) {
  RealRng one;
  RealRng other;
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(seen.insert(one.Next()).second);
    EXPECT_TRUE(seen.insert(other.Next()).second);
  }
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
