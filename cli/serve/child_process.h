// One child process of `quire serve`: its start, its ready line, its signals, its end.
//
// Owner: the supervisor's thread. The child leads its own process group, so that the terminal's
// Ctrl-C does not reach it, and gets SIGKILL when its parent dies. No call here blocks to wait for
// it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace quire::cli {

class ChildProcess {
 public:
  // Starts `program` with `args` (without the program's name) and the environment `environment`
  // ("NAME=value"). "--ready-fd N" is added; the child writes one line to that descriptor when it
  // serves.
  static absl::StatusOr<ChildProcess> Start(const std::string& program,
                                            std::vector<std::string> args,
                                            const std::vector<std::string>& environment);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // SIGKILL when it still runs

  pid_t pid() const { return pid_; }
  // Readable when the ready line (or its end) is there; −1 once it has been read.
  int ready_fd() const { return ready_fd_; }
  // Reads what is there. The line once it is whole; an empty one when the child closed without it.
  std::optional<std::string> ReadReadyLine();
  // The same for a child that writes many: the whole lines that are there.
  std::vector<std::string> ReadLines();

  void Signal(int signal);
  // The exit code when the child has ended: 128 + signal for a signal. Reaps it.
  std::optional<int> TryReap();

 private:
  ChildProcess() = default;
  pid_t pid_ = -1;
  int ready_fd_ = -1;
  std::string ready_text_;
};

}  // namespace quire::cli
