// Rank processes as their host meets them: stopped before they run, given up before they end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/ranks/tag_rank.h"
#include "worker/ranks/rank_group.h"

namespace quire::test {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Holds so many descriptors that a child is busy closing them for a while before it runs its
// program.
class ManyDescriptors {
 public:
  ManyDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = std::min<rlim_t>(before_.rlim_max, kMost);
    setrlimit(RLIMIT_NOFILE, &more);
    const size_t count = static_cast<size_t>(more.rlim_cur) - kLeft;
    const int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int fd = first; fd >= 0 && held_.size() < count; fd = dup(first)) held_.push_back(fd);
  }
  ~ManyDescriptors() {
    for (const int fd : held_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  static constexpr size_t kMost = 20'000;
  static constexpr size_t kLeft = 100;  // for what is tested
  rlimit before_{};
  std::vector<int> held_;
};

// Stops every child of this process as soon as it can be seen.
class Stopper {
 public:
  Stopper() : thread_([this] { Run(); }) {}
  ~Stopper() {
    done_ = true;
    thread_.join();
  }
  // One that had not begun its program: its command line is still this process's.
  bool met_one_before_it_ran() const { return met_; }

 private:
  void Run() {
    const std::string own = TextOf("/proc/self/cmdline");
    std::set<int> stopped;
    while (!done_) {
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream children(task.path() / "children");
        for (int child = 0; children >> child;) {
          if (!stopped.insert(child).second || kill(child, SIGSTOP) != 0) continue;
          const std::string process = "/proc/" + std::to_string(child);
          while (TextOf(process + "/stat").find(") T ") == std::string::npos && !done_) continue;
          if (TextOf(process + "/cmdline") == own) met_ = true;
        }
      }
    }
  }

  std::atomic<bool> done_{false};
  std::atomic<bool> met_{false};
  std::thread thread_;
};

RankGroupOptions OneRank() {
  RankGroupOptions options;
  options.setup.size = 1;
  options.setup.limits = {.max_rows = 8,
                          .max_tokens = 64,
                          .max_model_len = 128,
                          .block_size = 4,
                          .groups = 2,
                          .page_count = 100,
                          .vocab_size = 50};
  options.identity = kTagIdentity;
  options.step_timeout_us = 50'000;
  options.on_hopeless = [](const std::string& what) { FAIL() << what; };
  return options;
}

// It has no program yet that could be waited for, and holds up neither the thread that looks after
// the ranks nor whoever waits for that one.
TEST(ProcessRanks, AChildThatIsStoppedBeforeItRunsIsFoundAndEnded) {
  const ManyDescriptors many;
  NullLogger log;
  bool met = false;
  for (int round = 0; round < 40 && !met; ++round) {
    const auto host = MakeProcessRanks(TagFault().Arguments());
    Metrics registry;
    RankMetrics metrics(registry);
    RankGroup group(OneRank(), *host, log, metrics);
    const Stopper stopper;
    const absl::Status started = group.Start();
    met = stopper.met_one_before_it_ran();
    if (!met) continue;
    EXPECT_EQ(StatusMessage(started),
              "rank 0 has been stopped by a signal and does not go on while it loads");
  }
  EXPECT_TRUE(met) << "no child was met in time";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(ProcessRanks, OneThatWasGivenUpIsReapedWhenItEndsAfterAll) {
  const auto host = MakeProcessRanks(TagFault().Arguments());
  const auto channel = HostChannel::Create();
  ASSERT_TRUE(channel.ok());
  std::string error;
  const auto group = kernels::SharedGroup::Create({1, 0}, error);
  ASSERT_NE(group, nullptr) << error;
  ASSERT_TRUE(host->Start({0, channel->get(), group.get()}).ok());
  EXPECT_TRUE(host->Kill(0));
  host->GiveUp(0);
  siginfo_t child = {};
  bool gone = false;
  for (int look = 0; look < 20'000 && !gone; ++look) {
    EXPECT_EQ(host->Ended(0), "was not there");
    gone = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) != 0;  // there are no children
    if (!gone) usleep(500);
  }
  EXPECT_TRUE(gone) << "a zombie stays";
}

}  // namespace
}  // namespace quire::test
