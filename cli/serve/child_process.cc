#include "cli/serve/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace quire::cli {
namespace {

constexpr size_t kMaxReadyLineBytes = 65536;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void ExecChild(const char* program, char* const* argv, char* const* envp,
                            pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(program, argv, envp);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                 std::vector<std::string> args,
                                                 const std::vector<std::string>& environment) {
  if (access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(AbslView(program +
                                        ": is not there or cannot be run; it is installed "
                                        "in the same folder as quire"));
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  fcntl(fds[1], F_SETFD, 0);
  args.insert(args.begin(), program);
  args.push_back("--ready-fd=" + std::to_string(fds[1]));
  const std::vector<char*> argv = Pointers(args);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) ExecChild(program.c_str(), argv.data(), envp.data(), parent);
  close(fds[1]);
  if (pid < 0) {
    close(fds[0]);
    return absl::ErrnoToStatus(errno, "fork");
  }
  ChildProcess child;
  child.pid_ = pid;
  child.ready_fd_ = fds[0];
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ready_fd_(std::exchange(other.ready_fd_, -1)),
      ready_text_(std::move(other.ready_text_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(ready_fd_, other.ready_fd_);
  std::swap(ready_text_, other.ready_text_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (ready_fd_ >= 0) close(ready_fd_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

std::optional<std::string> ChildProcess::ReadReadyLine() {
  char buffer[4096];
  while (ready_fd_ >= 0) {
    const ssize_t count = read(ready_fd_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return std::nullopt;
    if (count > 0) ready_text_.append(buffer, count);
    const size_t newline = ready_text_.find('\n');
    if (newline == std::string::npos && count > 0 && ready_text_.size() < kMaxReadyLineBytes)
      continue;
    close(std::exchange(ready_fd_, -1));
    return newline == std::string::npos ? "" : ready_text_.substr(0, newline);
  }
  return std::nullopt;
}

std::vector<std::string> ChildProcess::ReadLines() {
  std::vector<std::string> lines;
  char buffer[4096];
  while (ready_fd_ >= 0) {
    const ssize_t count = read(ready_fd_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count > 0) ready_text_.append(buffer, static_cast<size_t>(count));
    for (size_t end; (end = ready_text_.find('\n')) != std::string::npos;) {
      lines.push_back(ready_text_.substr(0, end));
      ready_text_.erase(0, end + 1);
    }
    if (count <= 0 || ready_text_.size() > kMaxReadyLineBytes) close(std::exchange(ready_fd_, -1));
  }
  return lines;
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

std::optional<int> ChildProcess::TryReap() {
  if (pid_ <= 0) return std::nullopt;
  int status = 0;
  const pid_t got = waitpid(pid_, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  pid_ = -1;
  if (got < 0) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace quire::cli
