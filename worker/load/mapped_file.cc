#include "worker/load/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire::load {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Map(const OpenFile& file,
                                                            const std::string& path) {
  if (file.size() <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the file is empty"));
  }
  const auto size = static_cast<size_t>(file.size());
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) {
    const char* help = errno == ENOMEM ? "; raise the limit (ulimit -v)" : "";
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot map it into memory: ", std::strerror(errno), help));
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, static_cast<std::byte*>(data), size));
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Copy(const OpenFile& file,
                                                             const std::string& path) {
  if (file.size() <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the file is empty"));
  }
  const auto size = static_cast<size_t>(file.size());
  void* data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no memory for its ", size, " bytes: ", std::strerror(errno)));
  }
  std::unique_ptr<MappedFile> copy(new MappedFile(path, static_cast<std::byte*>(data), size));
  for (size_t done = 0; done < size;) {
    const ssize_t count =
        pread(file.fd(), copy->data_ + done, size - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": cannot read all of it: ",
                       count < 0 ? std::strerror(errno) : "it was cut short meanwhile"));
    }
    done += static_cast<size_t>(count);
  }
  return copy;
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
  auto* const whole = static_cast<char*>(const_cast<void*>(data));
  if (last > first) madvise(whole + (first - begin), last - first, MADV_DONTNEED);
}

}  // namespace quire::load
