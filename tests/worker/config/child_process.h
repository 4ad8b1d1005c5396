// Starts quire-worker as a child: its output on one pipe, its ready line on another.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/json/json.h"

namespace quire {

inline constexpr char kDemo[] = QUIRE_SOURCE_DIR "/models/demo";

class WorkerChild {
 public:
  explicit WorkerChild(std::vector<std::string> args) {
    int out[2];
    int ready[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(ready), 0);
    args.insert(args.begin(), QUIRE_BINARY_DIR "/bin/quire-worker");
    args.push_back("--ready-fd=" + std::to_string(ready[1]));
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      dup2(out[1], 2);
      close(out[0]);
      close(ready[0]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(ready[1]);
    out_ = out[0];
    ready_ = ready[0];
  }
  ~WorkerChild() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(ready_);
  }
  // Empty when the process ended without one.
  const std::string& ReadyLine() {
    if (ready_line_.empty()) ready_line_ = ReadAll(ready_);
    return ready_line_;
  }
  // A text member of the ready line.
  std::string Ready(std::string_view name) {
    const auto line = json::Parse(ReadyLine());
    if (!line.ok()) return "";
    const json::Value* value = json::Find(line->as_object(), name);
    return value == nullptr ? "" : std::string(json::View(value->as_string()));
  }
  void Signal(int signal) { kill(pid_, signal); }
  // Its log is full after a few lines, and stays so until Wait.
  void ReadNoLog() { EXPECT_GT(fcntl(out_, F_SETPIPE_SZ, 4096), 0); }
  // The exit code; 128 + the signal that ended it.
  int Wait() {
    output = ReadAll(out_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string output;  // after Wait

 private:
  static std::string ReadAll(int descriptor) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(descriptor, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
    return text;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  int ready_ = -1;
  std::string ready_line_;
};

inline std::vector<std::string> WorkerArguments(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--listen=127.0.0.1:0", "--http-port=0", "--log-format=json",
                                   "--kv-cache-memory-bytes=64MiB"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace quire
