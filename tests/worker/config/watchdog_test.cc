// A step that hangs ends the process, a slow one and a stopped process do not.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "worker/thread_stacks.h"
#include "worker/watchdog.h"

namespace quire {
namespace {

using Verdict = HangDetector::Verdict;
constexpr Micros kSecond = kMicrosPerSecond;
constexpr Micros kInterval = 200 * kMicrosPerMilli;

class HangDetectorTest : public testing::Test {
 protected:
  HangDetectorTest() { progress_.last_step_end_us = now_; }
  void Begin(Micros limit) {
    progress_.running_limit_us = limit;
    progress_.running_since_us = now_;
  }
  void End() { progress_.running_since_us = 0; }
  // Looks in time for so long; the verdicts that say something.
  std::vector<Verdict> LookFor(Micros micros) {
    std::vector<Verdict> told;
    for (const Micros end = now_ + micros; now_ < end;) {
      now_ += kInterval;
      const Verdict verdict = detector_.Look(now_, progress_);
      if (verdict != Verdict::kFine) told.push_back(verdict);
    }
    return told;
  }

  Micros now_ = 100 * kSecond;
  StepProgress progress_;
  HangDetector detector_{10 * kSecond, kInterval};
};

TEST_F(HangDetectorTest, AnIdleWorkerIsFine) { EXPECT_TRUE(LookFor(1000 * kSecond).empty()); }

TEST_F(HangDetectorTest, AHangIsToldOnceAndThenHopeless) {
  Begin(2 * kSecond);
  EXPECT_TRUE(LookFor(2 * kSecond).empty());
  EXPECT_EQ(LookFor(kSecond), (std::vector{Verdict::kStuck}));
  EXPECT_TRUE(LookFor(8 * kSecond).empty());
  EXPECT_EQ(LookFor(2 * kSecond), (std::vector{Verdict::kHopeless}));
  EXPECT_TRUE(LookFor(100 * kSecond).empty());
}

TEST_F(HangDetectorTest, ASlowStepWithinItsLimitIsLegitimate) {
  Begin(60 * kSecond);
  EXPECT_TRUE(LookFor(59 * kSecond).empty());
  End();
  EXPECT_TRUE(LookFor(kSecond).empty());
}

// Loading, packing and first touches may make the first step as slow as they like.
TEST_F(HangDetectorTest, IsArmedByTheFirstStepThatEnds) {
  progress_.last_step_end_us = 0;
  Begin(2 * kSecond);
  EXPECT_TRUE(LookFor(1000 * kSecond).empty());
  End();
  progress_.last_step_end_us = now_;
  EXPECT_TRUE(LookFor(kSecond).empty());
  Begin(2 * kSecond);
  EXPECT_EQ(LookFor(3 * kSecond), (std::vector{Verdict::kStuck}));
}

TEST_F(HangDetectorTest, ADeviceThatComesBackWarmsUpAnew) {
  progress_.device_lost = true;
  Begin(2 * kSecond);
  EXPECT_TRUE(LookFor(60 * kSecond).empty());
  End();
  progress_.device_lost = false;  // with the first step that it ends
  progress_.last_step_end_us = now_;
  Begin(2 * kSecond);
  EXPECT_EQ(LookFor(3 * kSecond), (std::vector{Verdict::kStuck}));
}

TEST_F(HangDetectorTest, AStepThatEndsInTheGraceIsForgiven) {
  Begin(2 * kSecond);
  EXPECT_EQ(LookFor(5 * kSecond), (std::vector{Verdict::kStuck}));
  End();
  EXPECT_EQ(LookFor(kSecond), (std::vector{Verdict::kRecovered}));
  Begin(2 * kSecond);
  EXPECT_TRUE(LookFor(2 * kSecond).empty());  // a new step has all its time
}

TEST_F(HangDetectorTest, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  LookFor(kSecond);
  Begin(2 * kSecond);
  LookFor(kSecond);
  now_ += 3600 * kSecond;  // SIGSTOP … SIGCONT
  EXPECT_TRUE(LookFor(kSecond / 2).empty());
  EXPECT_LE(detector_.step_age(), 2 * kSecond);
  // It goes on to hang: that still shows, and the grace is not used up by another stop.
  EXPECT_EQ(LookFor(2 * kSecond), (std::vector{Verdict::kStuck}));
  now_ += 3600 * kSecond;
  EXPECT_TRUE(LookFor(5 * kSecond).empty());
  EXPECT_EQ(LookFor(8 * kSecond), (std::vector{Verdict::kHopeless}));
}

TEST_F(HangDetectorTest, WithoutAGraceItStays) {
  HangDetector detector(0, kInterval);
  Begin(kSecond);
  int told = 0;
  for (int look = 0; look < 10'000; ++look) {
    now_ += kInterval;
    told += detector.Look(now_, progress_) != Verdict::kFine;
  }
  EXPECT_EQ(told, 1);
}

// Far up the stack of a thread that never comes back.
[[gnu::noinline]] void HangHere(std::mutex& mutex, std::condition_variable& wake, bool& stop) {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stop) wake.wait(lock);
}

TEST(ThreadStacksTest, EveryThreadIsNamedWithFrames) {
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  std::atomic<bool> started{false};
  std::thread hung([&] {
    pthread_setname_np(pthread_self(), "hung-step");
    started = true;
    HangHere(mutex, wake, stop);
  });
  while (!started) std::this_thread::yield();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::string text;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  });
  ThreadStacks stacks;
  stacks.Write(ends[1]);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stop = true;
  }
  wake.notify_all();
  hung.join();
  const size_t at = text.find("(hung-step):\n");
  ASSERT_NE(at, std::string::npos) << text;
  const size_t next = text.find("\nthread ", at);
  const std::string frames = text.substr(at, next == std::string::npos ? next : next - at);
  EXPECT_NE(frames.find("/test_worker_config"), std::string::npos) << frames;
  size_t threads = 0;
  for (size_t i = text.find("thread "); i != std::string::npos; i = text.find("\nthread ", i + 1)) {
    ++threads;
  }
  EXPECT_GE(threads, 3u) << text;
}

class SteadyClock final : public Clock {
 public:
  Micros Now() const override {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  }
  int64_t UnixSeconds() const override { return 0; }
};

// The whole of it in a process of its own, with a step that never ends.
void HangAsAWorkerWould() {
  const SteadyClock clock;
  StepProgress progress;
  progress.last_step_end_us = 1;
  progress.running_limit_us = 1;
  progress.running_since_us = clock.Now() - 1000;
  ThreadStacks stacks;
  WatchdogOptions options;
  options.grace = 20 * kMicrosPerMilli;
  options.interval = 5 * kMicrosPerMilli;
  options.on_stuck = [&](const std::string& what) {
    std::fprintf(stderr, "stuck: %s\n", what.c_str());
    stacks.Write(STDERR_FILENO);
  };
  options.on_recovered = [](const std::string&) { std::_Exit(3); };
  options.on_hopeless = [](const std::string& what) {
    std::fprintf(stderr, "hopeless: %s\n", what.c_str());
    std::_Exit(1);
  };
  const Watchdog watchdog(progress, clock, options);
  while (true) pause();
}

TEST(WatchdogDeathTest, AHangingStepIsLoggedWithStacksAndEndsTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(HangAsAWorkerWould(), testing::ExitedWithCode(1),
              "stuck: a step has run for(.|\n)*watchdog(.|\n)*hopeless: ");
}

}  // namespace
}  // namespace quire
