#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "common/check.h"
#include "worker/ranks/rank_host.h"

namespace quire {
namespace {

constexpr int kChannelFd = 3;  // in the child
constexpr int kGroupFd = 4;
constexpr int kAdaptersFd = 5;
constexpr int kFirstOtherFd = 6;
constexpr int kNoProgram = 127;  // the exit code of a child whose program cannot be run

// Closes what it holds.
struct OwnedFd {
  int fd = -1;
  explicit OwnedFd(int descriptor) : fd(descriptor) {}
  ~OwnedFd() {
    if (fd >= 0) close(fd);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
};

// What a child gets; `adapters` is −1 where there are none.
struct GivenFds {
  int channel;
  int group;
  int adapters;
};

// A copy outside of the numbers that the child gets.
int CopyAbove(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, kFirstOtherFd); }

// In the child, a copy of one thread of many: only functions that are safe in a signal handler may
// be called here. It runs this program again, as it was started, even when its file has been
// replaced since.
[[noreturn]] void RunAnew(const GivenFds& fds, char** argv, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if it never reaches its program
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    const bool handled = sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN &&
                         action.sa_handler != SIG_DFL;
    if (handled) signal(number, SIG_DFL);
  }
  dup2(fds.channel, kChannelFd);
  dup2(fds.group, kGroupFd);
  if (fds.adapters >= 0) dup2(fds.adapters, kAdaptersFd);
  closefrom(fds.adapters >= 0 ? kFirstOtherFd : kAdaptersFd);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execve("/proc/self/exe", argv, environ);
  _exit(kNoProgram);
}

// The child's id, or −1. Not posix_spawn: that returns when the child has begun its program, which
// a child that a signal stops before never does, and the thread that supervises all ranks would
// wait for it.
pid_t StartChild(const GivenFds& fds, char** argv) {
  // The child must not run this process's handlers: they would write to descriptors of both.
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t child = _Fork();
  if (child == 0) RunAnew(fds, argv, mask);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  return child;
}

class ProcessRanks final : public RankHost {
 public:
  explicit ProcessRanks(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  ~ProcessRanks() override {
    for (auto& [rank, child] : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, WNOHANG);
      if (child.watch_fd >= 0) close(child.watch_fd);
    }
  }

  absl::Status Start(const RankStart& start) override {
    QUIRE_CHECK_MSG(!children_.contains(start.rank), "the rank of before has not ended");
    const OwnedFd channel(CopyAbove(start.channel->fd()));
    const OwnedFd group(CopyAbove(start.group->fd()));
    const bool adapted = start.adapters != nullptr;
    const OwnedFd adapters(adapted ? CopyAbove(start.adapters->fd()) : -1);
    if (channel.fd < 0 || group.fd < 0 || (adapted && adapters.fd < 0)) {
      return absl::ResourceExhaustedError("no descriptor is free for a rank");
    }
    std::vector<std::string> texts = {
        "quire-worker", std::string(kRankProcessFlag) + std::to_string(getpid()) + "," +
                            std::to_string(kChannelFd) + "," + std::to_string(kGroupFd) + "," +
                            std::to_string(adapted ? kAdaptersFd : -1)};
    texts.insert(texts.end(), arguments_.begin(), arguments_.end());
    std::vector<char*> argv;
    argv.reserve(texts.size() + 1);
    for (std::string& text : texts) argv.push_back(text.data());
    argv.push_back(nullptr);
    Child child;
    child.pid = StartChild({channel.fd, group.fd, adapters.fd}, argv.data());
    if (child.pid < 0) {
      return absl::ResourceExhaustedError(
          AbslView(std::string("a rank process cannot be started: ") + std::strerror(errno)));
    }
    child.watch_fd = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
    if (child.watch_fd >= 0) fcntl(child.watch_fd, F_SETFD, FD_CLOEXEC);
    children_[start.rank] = child;
    return absl::OkStatus();
  }

  std::optional<std::string> Ended(int rank) override {
    Bury();
    const auto at = children_.find(rank);
    if (at == children_.end()) return "was not there";
    int status = 0;
    pid_t reaped = 0;
    while ((reaped = waitpid(at->second.pid, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
      if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) break;
      at->second.stopped = WIFSTOPPED(status);
    }
    if (reaped == 0 || (reaped < 0 && errno == EINTR)) return std::nullopt;
    if (at->second.watch_fd >= 0) close(at->second.watch_fd);
    children_.erase(at);
    if (reaped < 0) return "is gone";
    if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
    return "exited with code " + std::to_string(WEXITSTATUS(status));
  }

  bool Stopped(int rank) const override {
    const auto at = children_.find(rank);
    return at != children_.end() && at->second.stopped;
  }

  int WatchFd(int rank) const override {
    const auto at = children_.find(rank);
    return at == children_.end() ? -1 : at->second.watch_fd;
  }

  bool Kill(int rank) override {
    const auto at = children_.find(rank);
    if (at != children_.end()) kill(at->second.pid, SIGKILL);
    return true;
  }

  void GiveUp(int rank) override {
    const auto at = children_.find(rank);
    if (at == children_.end()) return;
    if (at->second.watch_fd >= 0) close(at->second.watch_fd);
    given_up_.push_back(at->second.pid);
    children_.erase(at);
  }

 private:
  struct Child {
    pid_t pid = -1;
    int watch_fd = -1;
    bool stopped = false;
  };

  // Given-up ranks that have died since must not stay zombies.
  void Bury() {
    std::erase_if(given_up_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
  }

  const std::vector<std::string> arguments_;
  std::map<int, Child> children_;
  std::vector<pid_t> given_up_;
};

}  // namespace

std::unique_ptr<RankHost> MakeProcessRanks(std::vector<std::string> arguments) {
  return std::make_unique<ProcessRanks>(std::move(arguments));
}

std::optional<RankProcessArgument> ParseRankProcess(std::string_view argument) {
  if (!argument.starts_with(kRankProcessFlag)) return std::nullopt;
  RankProcessArgument parsed;
  const std::string numbers(argument.substr(kRankProcessFlag.size()));
  char rest = 0;
  if (std::sscanf(numbers.c_str(), "%d,%d,%d,%d%c", &parsed.parent_pid, &parsed.channel_fd,
                  &parsed.group_fd, &parsed.adapters_fd, &rest) != 4) {
    return std::nullopt;
  }
  return parsed;
}

bool BecomeRankProcess(const RankProcessArgument& argument) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the call above.
  if (getppid() != argument.parent_pid) return false;
  // A terminal sends these to the whole group; the worker decides when a rank leaves.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  fcntl(argument.channel_fd, F_SETFD, FD_CLOEXEC);
  fcntl(argument.group_fd, F_SETFD, FD_CLOEXEC);
  if (argument.adapters_fd >= 0) fcntl(argument.adapters_fd, F_SETFD, FD_CLOEXEC);
  return true;
}

absl::Status ServeRankProcess(const RankProcessArgument& argument, const RankBuilder& build) {
  QUIRE_ASSIGN_OR_RETURN(const auto channel, HostChannel::Open(argument.channel_fd));
  std::unique_ptr<kernels::SharedGroup> group;
  const GroupOpener open = [&](const RankSetup& setup) -> absl::StatusOr<kernels::SharedGroup*> {
    std::string error;
    prctl(PR_SET_NAME, ("quire-rank-" + std::to_string(setup.rank)).c_str());
    group = kernels::SharedGroup::Open({setup.size, setup.arena_bytes}, argument.group_fd, error);
    if (group == nullptr) return absl::InternalError(AbslView(error));
    return group.get();
  };
  return ServeRank(*channel, open, build, argument.adapters_fd);
}

}  // namespace quire
