#include "cli/models/output_folder.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "cli/format.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& path, const char* what, int error) {
  const std::string text = path + ": " + what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      fd_(open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::status() const {
  return fd_ < 0 ? Failed(path_, "cannot be made", errno) : absl::OkStatus();
}

absl::Status OutputFile::Reserve(int64_t bytes) const {
  if (fallocate(fd_, 0, 0, bytes) == 0) return absl::OkStatus();
  if (errno != EOPNOTSUPP && errno != ENOSYS) return Failed(path_, "cannot be enlarged", errno);
  return absl::OkStatus();
}

absl::Status OutputFile::Write(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Failed(path_, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  const int fd = std::exchange(fd_, -1);
  return close(fd) == 0 ? absl::OkStatus() : Failed(path_, "cannot be closed", errno);
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  OutputFile file(path);
  QUIRE_RETURN_IF_ERROR(file.status());
  QUIRE_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(text))));
  return file.Close();
}

absl::Status PutInPlace(const std::string& path) {
  if (rename((path + ".part").c_str(), path.c_str()) == 0) return absl::OkStatus();
  return Failed(path, "cannot be put in its place", errno);
}

absl::StatusOr<bool> TakeFolder(const std::string& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) {
    return absl::InvalidArgumentError(folder + ": cannot be made: " + error.message() +
                                      "; give a new folder");
  }
  fs::directory_iterator entries(folder, error);
  if (error) return absl::InvalidArgumentError(folder + ": cannot be read: " + error.message());
  if (entries != fs::directory_iterator()) {
    return absl::InvalidArgumentError(folder + ": holds " + entries->path().filename().string() +
                                      "; give a new folder or an empty one");
  }
  return made;
}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  for (const std::string& name : names_) fs::remove(path_ + "/" + name, ignored);
  if (made_) fs::remove(path_, ignored);  // only an empty one goes
}

std::string OutputFolder::Path(const std::string& name) {
  names_.push_back(name);
  return path_ + "/" + name;
}

absl::Status CheckRoom(const std::string& folder, int64_t needed, int64_t free) {
  if (needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(folder + ": the model takes " + std::to_string(needed) +
                                      " bytes (" + BytesText(static_cast<double>(needed)) +
                                      ") and " + BytesText(static_cast<double>(free)) +
                                      " are free there; make room or give another folder");
}

absl::Status CheckRoomOnDisk(const std::string& folder, int64_t needed) {
  struct statvfs room = {};
  // Full memory file systems without a limit of their own report 0 blocks of 0: they are not
  // checked.
  if (statvfs(folder.c_str(), &room) != 0 || room.f_blocks == 0) return absl::OkStatus();
  return CheckRoom(folder, needed,
                   static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize));
}

absl::Status RunTickets(size_t count, int threads, const std::atomic<bool>* interrupted,
                        const std::function<absl::Status(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  absl::Status status;  // under mutex until the threads are joined
  const auto run = [&] {
    for (;;) {
      const size_t ticket = next.fetch_add(1);
      if (ticket >= count || failed.load()) return;
      const bool stop = interrupted != nullptr && interrupted->load();
      const absl::Status done =
          stop ? absl::CancelledError("interrupted: what was written is removed again")
               : work(ticket);
      if (done.ok()) continue;
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) status = done;
      return;
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(run);
  run();
  for (std::thread& helper : helpers) helper.join();
  return status;
}

}  // namespace quire::cli
