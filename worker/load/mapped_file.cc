#include "worker/load/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::load {
namespace {

absl::Status FileError(const std::string& path, std::string_view what) {
  const int error = errno;
  std::string message = absl::StrCat(path, ": cannot ", AbslView(what), ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, "open");
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    absl::Status status = FileError(path, "read its size");
    close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode) || info.st_size <= 0) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": ", S_ISREG(info.st_mode) ? "the file is empty" : "not a regular file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  absl::Status status =
      data == MAP_FAILED ? FileError(path, "map it into memory") : absl::OkStatus();
  close(fd);
  if (!status.ok()) return status;
  return std::unique_ptr<MappedFile>(new MappedFile(path, static_cast<std::byte*>(data), size));
}

MappedFile::MappedFile(std::string path, std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() { munmap(data_, size_); }

bool MappedFile::Contains(const void* data) const {
  const auto* byte = static_cast<const std::byte*>(data);
  return byte >= data_ && byte < data_ + size_;
}

void MappedFile::Release(const void* data, int64_t bytes) const {
  if (Contains(data)) DropPages(data, bytes);
}

void DropPages(const void* data, int64_t bytes) {
  if (bytes <= 0) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / page * page;
  // The result is only advice: when it is refused the pages stay, which costs memory and breaks
  // nothing.
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace quire::load
