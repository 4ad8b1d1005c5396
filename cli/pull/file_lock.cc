#include "cli/pull/file_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace quire::pull {
namespace {

constexpr int kLookAgainMs = 100;

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& path, const std::atomic<bool>& cancelled,
                                        const std::function<void()>& on_wait) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, AbslView(path));
  FileLock lock(fd);
  bool waited = false;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return absl::ErrnoToStatus(errno, AbslView(path));
    if (cancelled) return absl::CancelledError("stopped");
    if (!std::exchange(waited, true) && on_wait) on_wait();
    poll(nullptr, 0, kLookAgainMs);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace quire::pull
