#include "cli/pull/part_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire::pull {
namespace {

constexpr size_t kHeadBytes = 256;
constexpr char kMagic[] = "quire parts 1\n";

static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(std::atomic<int64_t>) == 8);

size_t MapBytes(int chunks) { return kHeadBytes + 8 * static_cast<size_t>(chunks); }

int64_t ChunkBytes(int64_t size) { return std::clamp(size / 256, kMinChunkBytes, kMaxChunkBytes); }

// Text, size and identity of the download.
std::string HeadOf(int64_t size, std::string_view identity) {
  std::string head = kMagic + std::to_string(size) + "\n";
  head += identity.substr(0, kHeadBytes - head.size() - 1);
  head.resize(kHeadBytes, '\0');
  return head;
}

}  // namespace

PartFile::PartFile(std::string path, int64_t size, int fd)
    : path_(std::move(path)),
      size_(size),
      chunk_bytes_(ChunkBytes(size)),
      chunks_(static_cast<int>((size + chunk_bytes_ - 1) / chunk_bytes_)),
      fd_(fd) {}

PartFile::~PartFile() {
  if (map_ != nullptr) munmap(map_, MapBytes(chunks_));
  close(fd_);
}

absl::StatusOr<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path, int64_t size,
                                                         std::string_view identity) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, AbslView(path));
  std::unique_ptr<PartFile> file(new PartFile(path, size, fd));
  QUIRE_RETURN_IF_ERROR(file->OpenMap(identity));
  if (ftruncate(fd, size) != 0) return absl::ErrnoToStatus(errno, AbslView(path));
  return file;
}

absl::Status PartFile::OpenMap(std::string_view identity) {
  const std::string path = path_ + ".map";
  struct stat status = {};
  const bool is_whole = fstat(fd_, &status) == 0 && status.st_size == size_;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, AbslView(path));
  const size_t bytes = MapBytes(chunks_);
  const bool is_old =
      fstat(fd, &status) == 0 && status.st_size == static_cast<int64_t>(bytes) && is_whole;
  // With all its blocks: a page for which the disk has no room would end the process when written.
  const auto length = static_cast<off_t>(bytes);
  const int error = ftruncate(fd, length) != 0 ? errno : posix_fallocate(fd, 0, length);
  void* map =
      error != 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int map_error = error != 0 ? error : errno;
  close(fd);
  if (map == MAP_FAILED) return absl::ErrnoToStatus(map_error, AbslView(path));
  map_ = static_cast<char*>(map);
  done_ = reinterpret_cast<std::atomic<int64_t>*>(map_ + kHeadBytes);
  const std::string head = HeadOf(size_, identity);
  bool is_true = is_old && std::memcmp(map_, head.data(), head.size()) == 0;
  for (int i = 0; is_true && i < chunks_; ++i) {
    is_true = Done(i) >= 0 && Done(i) <= End(i) - Begin(i);
  }
  if (is_true) return absl::OkStatus();
  Restart();
  std::memcpy(map_, head.data(), head.size());
  return absl::OkStatus();
}

int64_t PartFile::Done(int chunk) const { return done_[chunk].load(std::memory_order_acquire); }

int64_t PartFile::BytesDone() const {
  int64_t sum = 0;
  for (int i = 0; i < chunks_; ++i) sum += Done(i);
  return sum;
}

int64_t PartFile::Prefix() const {
  for (int i = 0; i < chunks_; ++i) {
    if (Begin(i) + Done(i) < End(i)) return Begin(i) + Done(i);
  }
  return size_;
}

absl::Status PartFile::Append(int chunk, std::string_view bytes) {
  int64_t done = Done(chunk);
  if (static_cast<int64_t>(bytes.size()) > End(chunk) - Begin(chunk) - done) {
    return absl::OutOfRangeError("the server sends more than it was asked for");
  }
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd_, bytes.data(), bytes.size(), Begin(chunk) + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, AbslView(path_));
    bytes.remove_prefix(static_cast<size_t>(count));
    done += count;
    done_[chunk].store(done, std::memory_order_release);
  }
  return absl::OkStatus();
}

void PartFile::Restart() {
  for (int i = 0; i < chunks_; ++i) done_[i].store(0, std::memory_order_release);
  ++generation_;
}

absl::StatusOr<size_t> PartFile::Read(int64_t offset, char* buffer, size_t size) const {
  ssize_t count = -1;
  do {
    count = pread(fd_, buffer, size, offset);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return absl::ErrnoToStatus(errno, AbslView(path_));
  return static_cast<size_t>(count);
}

absl::Status PartFile::MoveTo(const std::string& path) {
  if (fdatasync(fd_) != 0 || rename(path_.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, AbslView(path));
  }
  unlink((path_ + ".map").c_str());
  return absl::OkStatus();
}

void PartFile::Remove() {
  unlink(path_.c_str());
  unlink((path_ + ".map").c_str());
}

}  // namespace quire::pull
