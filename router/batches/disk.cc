#include "router/batches/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

namespace quire::batches {
namespace {

// Calls `take` for each name.
absl::Status ForEachName(const std::string& folder,
                         const std::function<void(int fd, const char* name)>& take) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return absl::OkStatus();
  DIR* const stream = fd < 0 ? nullptr : fdopendir(fd);
  if (stream == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return DiskError("a folder cannot be read", error);
  }
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || entry->d_name[1] == '.')) continue;
    take(fd, entry->d_name);
  }
  closedir(stream);
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return DiskError("a file cannot be written", count == 0 ? ENOSPC : errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : DiskError("a file cannot be written", errno);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DiskError(const std::string& what, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(
        AbslView("the disk of --batches-dir is full (" + what + "): " + std::strerror(error)));
  }
  return absl::InternalError(
      AbslView("--batches-dir fails (" + what + "): " + std::strerror(error)));
}

absl::StatusOr<Descriptor> OpenFile(const std::string& path, int flags) {
  Descriptor file(open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT) return absl::NotFoundError("there is no such file");
    if (error == ELOOP) return absl::DataLossError("a link stands in the place of a file");
    return DiskError("a file cannot be opened", error);
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::DataLossError("something else stands in the place of a file");
  }
  return file;
}

absl::StatusOr<int64_t> BytesOf(const Descriptor& file) {
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return DiskError("a file cannot be read", errno);
  return info.st_size;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  QUIRE_ASSIGN_OR_RETURN(const Descriptor file, OpenFile(path, O_RDONLY));
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(file.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DiskError("a file cannot be read", errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > max_bytes) return absl::DataLossError("a description is too long");
  }
}

absl::Status WriteWhole(const std::string& folder, const std::string& name, std::string_view text,
                        const std::string& temporary) {
  const std::string path = folder + "/" + temporary;
  absl::Status written = absl::OkStatus();
  {
    QUIRE_ASSIGN_OR_RETURN(const Descriptor file, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL));
    written = WriteAll(file.get(), text);
  }
  if (written.ok()) written = MoveFile(path, folder + "/" + name);
  if (!written.ok()) {
    unlink(path.c_str());
    return written;
  }
  return SyncFolder(folder);
}

absl::Status SyncFolder(const std::string& folder) {
  const Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() >= 0 && (fsync(fd.get()) == 0 || errno == EINVAL)) return absl::OkStatus();
  return DiskError("a folder cannot be written", errno);
}

absl::Status MoveFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return DiskError("a file cannot be renamed", errno);
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return DiskError("a file cannot be removed", errno);
}

absl::Status RemoveContents(const std::string& path) {
  const absl::Status emptied = OpenFile(path, O_WRONLY | O_TRUNC).status();
  const bool is_none = absl::IsNotFound(emptied) || absl::IsDataLoss(emptied);
  return emptied.ok() || is_none ? RemoveFile(path) : emptied;
}

absl::StatusOr<std::vector<FolderEntry>> FilesIn(const std::string& folder) {
  std::vector<FolderEntry> files;
  QUIRE_RETURN_IF_ERROR(ForEachName(folder, [&](int fd, const char* name) {
    struct stat info = {};
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) {
      files.push_back({name, info.st_size, info.st_mtime});
    }
  }));
  return files;
}

absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder) {
  std::vector<std::string> folders;
  QUIRE_RETURN_IF_ERROR(ForEachName(folder, [&](int fd, const char* name) {
    struct stat info = {};
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
      folders.emplace_back(name);
    }
  }));
  return folders;
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return DiskError("a folder cannot be made", errno);
  }
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::DataLossError("something else stands in the place of a folder");
  }
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> LockFolder(const std::string& folder) {
  QUIRE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(folder + "/.lock", O_RDWR | O_CREAT));
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return DiskError("a lock cannot be had", errno);
  }
  return file;
}

}  // namespace quire::batches
