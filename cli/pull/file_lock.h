// A lock that one process at a time has, by flock: the hub's own client takes the same ones.
//
// Owner: one thread. The system frees it when its process ends.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "common/status.h"

namespace quire::pull {

class FileLock {
 public:
  // Waits while another process has it, and calls `on_wait` once where it has to; CANCELLED when
  // `cancelled` becomes true.
  static absl::StatusOr<FileLock> Take(const std::string& path, const std::atomic<bool>& cancelled,
                                       const std::function<void()>& on_wait);
  FileLock(FileLock&& other) noexcept;
  ~FileLock();
  FileLock& operator=(FileLock&&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace quire::pull
