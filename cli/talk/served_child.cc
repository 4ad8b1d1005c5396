#include "cli/talk/served_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "cli/format.h"
#include "cli/model_names.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxPrintedBytes = 1u << 20;
constexpr int kPollMs = 100;

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Its errors begin so; the lines before are its log.
std::string LastWords(const std::string& printed) {
  std::string last;
  for (size_t start = 0; start < printed.size();) {
    const size_t end = std::min(printed.find('\n', start), printed.size());
    if (end > start) last = printed.substr(start, end - start);
    start = end + 1;
  }
  return last.empty() ? "it ended without a word" : PlainText(last, 1000);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedChild>> ServedChild::Start(
    const std::vector<std::string>& args, const config::Environment& environment,
    const std::atomic<bool>& cancelled) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  std::vector<std::string> words = {config::ExecutablePath(), "serve"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    // It reads no settings of other commands, nor a port that is taken.
    if (!name.starts_with("QUIRE_")) variables.push_back(name + "=" + value);
  }
  const std::vector<char*> argv = Pointers(words), envp = Pointers(variables);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(fds[1], STDOUT_FILENO);
    dup2(fds[1], STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(fds[1]);
  if (pid < 0) {
    close(fds[0]);
    return absl::ErrnoToStatus(errno, "fork");
  }
  std::unique_ptr<ServedChild> child(new ServedChild(pid, fds[0]));
  QUIRE_RETURN_IF_ERROR(child->AwaitReady(cancelled));
  return child;
}

absl::Status ServedChild::AwaitReady(const std::atomic<bool>& cancelled) {
  while (printed_.size() < kMaxPrintedBytes) {
    if (cancelled) return absl::CancelledError("stopped");
    pollfd p = {fd_, POLLIN, 0};
    if (poll(&p, 1, kPollMs) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    printed_.append(buffer, static_cast<size_t>(count));
    const size_t ready = printed_.find("ready: http");
    const size_t end = ready == std::string::npos ? ready : printed_.find(' ', ready + 7);
    if (end == std::string::npos) continue;
    url_ = printed_.substr(ready + 7, end - ready - 7);
    return absl::OkStatus();
  }
  return absl::UnavailableError(AbslView(LastWords(printed_)));
}

ServedChild::~ServedChild() {
  // A reader that is gone would end it by SIGPIPE before it has drained.
  kill(pid_, SIGTERM);
  char buffer[4096];
  while (true) {
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace quire::cli
