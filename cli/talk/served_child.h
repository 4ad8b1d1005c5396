// `quire serve` as a child: for a command that serves a model as long as it runs.
//
// Owner: one thread. The child leads a process group of its own, so that Ctrl-C does not reach it,
// and ends with its parent.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

class ServedChild {
 public:
  // Waits until it serves; its environment goes without settings of Quire. UNAVAILABLE with its
  // last words when it ends before; CANCELLED when `cancelled` becomes true.
  static absl::StatusOr<std::unique_ptr<ServedChild>> Start(const std::vector<std::string>& args,
                                                            const config::Environment& environment,
                                                            const std::atomic<bool>& cancelled);
  ~ServedChild();  // lets it end in order
  ServedChild(const ServedChild&) = delete;

  const std::string& url() const { return url_; }

 private:
  ServedChild(pid_t pid, int fd) : pid_(pid), fd_(fd) {}
  absl::Status AwaitReady(const std::atomic<bool>& cancelled);

  const pid_t pid_;
  const int fd_;  // of what it prints
  std::string printed_;
  std::string url_;
};

}  // namespace quire::cli
