#include "common/config/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace quire::config {
namespace {

// What execve takes, over strings that live as long as this.
class ExecArguments {
 public:
  ExecArguments(const std::string& program, const std::vector<std::string>& args,
                const Environment& environment) {
    words_.push_back(program);
    words_.insert(words_.end(), args.begin(), args.end());
    for (const auto& [name, value] : environment) variables_.push_back(name + "=" + value);
    for (std::string& word : words_) argv_.push_back(word.data());
    for (std::string& variable : variables_) envp_.push_back(variable.data());
    argv_.push_back(nullptr);
    envp_.push_back(nullptr);
  }
  char* const* argv() { return argv_.data(); }
  char* const* envp() { return envp_.data(); }

 private:
  std::vector<std::string> words_, variables_;
  std::vector<char*> argv_, envp_;
};

absl::Status CheckRunnable(const std::string& program) {
  if (access(program.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(AbslView(
      program + ": is not there or cannot be run; it is installed in the same folder as quire"));
}

}  // namespace

absl::StatusOr<ProgramOutput> OutputOf(const std::string& program,
                                       const std::vector<std::string>& args,
                                       const Environment& environment,
                                       StandardError standard_error) {
  QUIRE_RETURN_IF_ERROR(CheckRunnable(program));
  ExecArguments arguments(program, args, environment);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fds[1], STDOUT_FILENO);
    if (standard_error == StandardError::kTaken) dup2(fds[1], STDERR_FILENO);
    execve(program.c_str(), arguments.argv(), arguments.envp());
    _exit(127);
  }
  close(fds[1]);
  ProgramOutput output;
  char buffer[4096];
  ssize_t count = 0;
  while (pid > 0 && output.text.size() <= kMaxOutputBytes) {
    count = read(fds[0], buffer, sizeof(buffer));
    if (count > 0) output.text.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  close(fds[0]);
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (output.text.size() > kMaxOutputBytes) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (output.text.size() > kMaxOutputBytes) {
    return absl::ResourceExhaustedError(AbslView(program + ": says more than can be taken in"));
  }
  output.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

absl::StatusOr<std::string> TextOf(const std::string& program,
                                   const std::vector<std::string>& args) {
  QUIRE_ASSIGN_OR_RETURN(ProgramOutput output, OutputOf(program, args, {}));
  if (output.exit_code == 0) return std::move(output.text);
  std::string what = program;
  for (const std::string& arg : args) what += " " + arg;
  return absl::InternalError(
      AbslView(what + ": failed with exit code " + std::to_string(output.exit_code)));
}

absl::Status Become(const std::string& program, const std::vector<std::string>& args,
                    const Environment& environment) {
  QUIRE_RETURN_IF_ERROR(CheckRunnable(program));
  ExecArguments arguments(program, args, environment);
  execve(program.c_str(), arguments.argv(), arguments.envp());
  return absl::ErrnoToStatus(errno, AbslView(program));
}

std::string ExecutablePath() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string("quire") : path.string();
}

std::string SiblingPath(const std::string& name) {
  return std::filesystem::path(ExecutablePath()).parent_path() / name;
}

}  // namespace quire::config
