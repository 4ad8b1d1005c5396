#include "worker/thread_stacks.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "common/check.h"

namespace quire {
namespace {

int StackSignal() { return SIGRTMIN + 5; }

std::string ThreadName(const char* task) {
  const std::string path = std::string("/proc/self/task/") + task + "/comm";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "?";
  char name[32];
  const ssize_t size = read(file, name, sizeof(name));
  close(file);
  if (size <= 1) return "?";
  return std::string(name, static_cast<size_t>(size) - 1);  // without the line's end
}

void Say(int descriptor, const std::string& line) {
  if (write(descriptor, line.data(), line.size()) < 0)
    return;  // there is nowhere left to report it
}

}  // namespace

// Reached by the handler through the signal's value, so that nothing here is global.
struct ThreadStacks::Exchange {
  std::atomic<pid_t> asked{0};  // the thread whose turn it is
  std::array<void*, kMaxStackFrames> frames{};
  int count = 0;
  sem_t answered;

  // Async-signal-safe once backtrace has been called before.
  static void Answer(int /*signal*/, siginfo_t* info, void* /*context*/) {
    if (info->si_code != SI_QUEUE || info->si_pid != getpid()) return;
    auto* exchange = static_cast<Exchange*>(info->si_value.sival_ptr);
    const int saved = errno;
    // A thread whose time was up must not write into another's frames.
    pid_t self = static_cast<pid_t>(syscall(SYS_gettid));
    if (exchange->asked.compare_exchange_strong(self, 0)) {
      exchange->count = backtrace(exchange->frames.data(), kMaxStackFrames);
      sem_post(&exchange->answered);
    }
    errno = saved;
  }
};

ThreadStacks::ThreadStacks() : exchange_(std::make_unique<Exchange>()) {
  QUIRE_CHECK(sem_init(&exchange_->answered, 0, 0) == 0);
  // The first call loads the unwinder, which allocates: not in a handler.
  backtrace(exchange_->frames.data(), kMaxStackFrames);
  struct sigaction action = {};
  action.sa_sigaction = &Exchange::Answer;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  QUIRE_CHECK(sigaction(StackSignal(), &action, nullptr) == 0);
}

ThreadStacks::~ThreadStacks() {
  signal(StackSignal(), SIG_IGN);
  sem_destroy(&exchange_->answered);
}

void ThreadStacks::Write(int descriptor) {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return Say(descriptor, "stacks: /proc/self/task cannot be read\n");
  while (const dirent* task = readdir(tasks)) {
    const pid_t thread = static_cast<pid_t>(std::atoi(task->d_name));
    if (thread <= 0) continue;
    Say(descriptor, "thread " + std::to_string(thread) + " (" + ThreadName(task->d_name) + "):\n");
    siginfo_t info = {};
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = exchange_.get();
    exchange_->asked = thread;
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += int64_t{kStackWaitMillis} * 1'000'000;
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    const bool sent = syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, StackSignal(), &info) == 0;
    int waited = -1;
    do {
      if (sent) waited = sem_timedwait(&exchange_->answered, &until);
    } while (sent && waited != 0 && errno == EINTR);
    pid_t unanswered = thread;
    if (waited != 0 && exchange_->asked.compare_exchange_strong(unanswered, 0)) {
      Say(descriptor, "  (does not answer)\n");
      continue;
    }
    // It has begun to answer: then it also ends.
    while (waited != 0) waited = sem_wait(&exchange_->answered);
    backtrace_symbols_fd(exchange_->frames.data(), exchange_->count, descriptor);
  }
  closedir(tasks);
}

}  // namespace quire
