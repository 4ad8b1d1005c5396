#include "worker/load/model_roots.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::load {
namespace {

absl::Status FileError(const std::string& path, std::string_view what) {
  const int error = errno;
  std::string message = absl::StrCat(path, ": cannot ", AbslView(what), ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

// The path of an open descriptor, according to the kernel.
absl::StatusOr<std::string> PlaceOf(int fd, const std::string& path) {
  char place[PATH_MAX];
  const ssize_t length =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), place, sizeof(place) - 1);
  if (length < 0) return FileError(path, "tell where it lies (/proc/self/fd)");
  return std::string(place, static_cast<size_t>(length));
}

// Opened only when stat shows what it is: opening a FIFO waits, and some devices act on it.
absl::StatusOr<OpenFile> OpenPlace(const std::string& path, bool folder) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return FileError(path, "open");
  const int flags = folder ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK | O_NOCTTY;
  const bool right = folder ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode);
  if (!right) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, folder ? ": not a folder" : ": not a regular file"));
  }
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return FileError(path, "open");
  const bool known = fstat(fd, &info) == 0;
  OpenFile file(fd, known ? info.st_size : 0);
  if (!known) return FileError(path, "read its size");
  if (!folder && !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  return file;
}

absl::StatusOr<std::string> FolderPlace(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const OpenFile folder, OpenPlace(path, /*folder=*/true));
  return PlaceOf(folder.fd(), path);
}

bool IsBelow(std::string_view place, std::string_view root) {
  return root == "/" || (place.starts_with(root) && place.substr(root.size()).starts_with('/'));
}

}  // namespace

OpenFile::OpenFile(OpenFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

OpenFile::~OpenFile() {
  if (fd_ >= 0) close(fd_);
}

std::string HubFolderOf(const std::string& path) {
  constexpr std::string_view kSnapshots = "/snapshots/";
  const size_t snapshots = path.rfind(kSnapshots);
  if (snapshots == std::string::npos || snapshots == 0) return "";
  const size_t name = path.rfind('/', snapshots - 1) + 1;
  return path.compare(name, 8, "models--") == 0 ? path.substr(0, snapshots) : "";
}

absl::StatusOr<ModelRoots> ModelRoots::Of(const std::string& model,
                                          const std::vector<std::string>& allowed) {
  ModelRoots roots;
  struct stat info {};
  if (stat(model.c_str(), &info) != 0) return FileError(model, "open");
  if (S_ISDIR(info.st_mode)) {
    QUIRE_ASSIGN_OR_RETURN(std::string root, FolderPlace(model));
    if (std::string hub = HubFolderOf(root); !hub.empty()) roots.roots_.push_back(std::move(hub));
    roots.roots_.push_back(std::move(root));
  } else {
    QUIRE_ASSIGN_OR_RETURN(const OpenFile file, OpenPlace(model, /*folder=*/false));
    QUIRE_ASSIGN_OR_RETURN(std::string itself, PlaceOf(file.fd(), model));
    roots.file_ = std::move(itself);
  }
  for (const std::string& folder : allowed) {
    absl::StatusOr<std::string> root = FolderPlace(folder);
    if (!root.ok()) return Annotate(root.status(), "--allowed-model-root");
    roots.roots_.push_back(*std::move(root));
  }
  return roots;
}

absl::StatusOr<OpenFile> ModelRoots::Open(const std::string& path) const {
  QUIRE_ASSIGN_OR_RETURN(OpenFile file, OpenPlace(path, /*folder=*/false));
  QUIRE_ASSIGN_OR_RETURN(const std::string place, PlaceOf(file.fd(), path));
  const bool allowed = place == file_ ||
                       std::any_of(roots_.begin(), roots_.end(), [&place](const std::string& root) {
                         return IsBelow(place, root);
                       });
  if (allowed) return file;
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": is a link out of the model's folder, to ", place,
      "; put the file itself there, or, if clients may read it, allow --allowed-model-root=",
      place.substr(0, std::max<size_t>(place.rfind('/'), 1))));
}

}  // namespace quire::load
