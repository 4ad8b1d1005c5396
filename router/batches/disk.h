// The few things that the store does on disk: whole files, locks, names of a folder.
//
// Blocking; any thread. No function follows a link at the end of a path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire::batches {

// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// RESOURCE_EXHAUSTED: the disk, or its quota, is full; INTERNAL: any other failure, in words.
absl::Status DiskError(const std::string& what, int error);

// NOT_FOUND: there is none. A link, or anything that is no file, is refused with DATA_LOSS.
absl::StatusOr<Descriptor> OpenFile(const std::string& path, int flags);
absl::StatusOr<int64_t> BytesOf(const Descriptor& file);
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);
// A file of that name is there whole, and stays through a loss of power, or the folder is as it
// was.
absl::Status WriteWhole(const std::string& folder, const std::string& name, std::string_view text,
                        const std::string& temporary);
absl::Status SyncFolder(const std::string& folder);
absl::Status MoveFile(const std::string& from, const std::string& to);
// OK also where there is none.
absl::Status RemoveFile(const std::string& path);
// The same, and a file's room on the disk is free at once, also where somebody has it open.
absl::Status RemoveContents(const std::string& path);

struct FolderEntry {
  std::string name;
  int64_t bytes = 0;
  int64_t modified_at = 0;  // unix seconds
};
// Files alone, in no order. A folder that is not there has none.
absl::StatusOr<std::vector<FolderEntry>> FilesIn(const std::string& folder);
// Folders alone; links are none.
absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder);
// Makes it where it is not there. A link is refused.
absl::Status MakeFolder(const std::string& path);

// Waits for a lock that all processes with the folder share, and holds it.
absl::StatusOr<Descriptor> LockFolder(const std::string& folder);

}  // namespace quire::batches
