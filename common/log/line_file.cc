#include "common/log/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

// −1 with errno set. Never waits for the other end of a pipe, which is refused afterwards.
int OpenForAppending(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

bool IsRegular(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// Bytes that were written before the first failure.
size_t WriteAll(int descriptor, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(LineFileOptions options) {
  const int descriptor = OpenForAppending(options.path);
  if (descriptor < 0) {
    return InvalidArgument(options.path + " cannot be written to: " + std::strerror(errno));
  }
  if (!IsRegular(descriptor)) {
    close(descriptor);
    return InvalidArgument(options.path + " is no regular file; name one, it is created if absent");
  }
  return std::unique_ptr<LineFile>(new LineFile(std::move(options), descriptor));
}

LineFile::LineFile(LineFileOptions options, int descriptor)
    : options_(std::move(options)), descriptor_(descriptor) {}

LineFile::~LineFile() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  close(descriptor_);
}

void LineFile::Start() {
  QUIRE_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

bool LineFile::Offer(std::string line) {
  bool taken = false;
  if (line.size() <= kMaxFileLineBytes) {
    MutexLock lock(mutex_);
    taken = queue_.size() < kMaxQueuedFileLines;
    if (taken) queue_.push_back(std::move(line));
  }
  if (taken) {
    wake_.notify_one();
  } else {
    Lose(1);
  }
  return taken;
}

void LineFile::Lose(uint64_t lines) {
  lost_.fetch_add(lines, std::memory_order_relaxed);
  if (options_.on_lost) options_.on_lost(lines);
}

void LineFile::Run() {
  std::vector<std::string> batch;
  for (;;) {
    {
      MutexLock held(mutex_);
      std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
      wake_.wait(lock,
                 [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !queue_.empty(); });
      lock.release();  // `held` unlocks
      batch.clear();
      batch.swap(queue_);
    }
    if (batch.empty()) return;  // stopping, and everything has been written
    FollowThePath();
    WriteBatch(batch);
  }
}

// Rotation: the path names another file by now, or none.
void LineFile::FollowThePath() {
  struct stat ours = {};
  struct stat named = {};
  if (fstat(descriptor_, &ours) != 0) return;
  const bool there = stat(options_.path.c_str(), &named) == 0;
  if (there && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino) return;
  const int descriptor = OpenForAppending(options_.path);
  if (descriptor < 0) return;  // the old file is better than none
  if (!IsRegular(descriptor)) {
    close(descriptor);
    return;
  }
  close(std::exchange(descriptor_, descriptor));
  torn_ = false;
}

void LineFile::WriteBatch(const std::vector<std::string>& lines) {
  std::string bytes;
  if (torn_) bytes += '\n';
  const size_t lead = bytes.size();
  for (const std::string& line : lines) (bytes += line) += '\n';
  const size_t done = WriteAll(descriptor_, bytes);
  uint64_t whole = 0;
  size_t end = lead;
  for (const std::string& line : lines) {
    end += line.size() + 1;
    if (end > done) break;
    ++whole;
  }
  written_.fetch_add(whole, std::memory_order_relaxed);
  if (whole == lines.size()) {
    torn_ = false;
    return;
  }
  torn_ = torn_ || done > 0;
  Lose(lines.size() - whole);
}

}  // namespace quire
