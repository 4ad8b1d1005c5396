// Where a model's files may be: a model comes from elsewhere, and a link in it could lead to any
// file that this process can read; clients would then be served the text of that file.
//
// A value; any thread.
//  1. An opened file is a regular file that, with all links followed, is below the model's folder,
//     in the same folder `models--…` of a Hugging Face cache (snapshots link to ../../blobs there),
//     or below an allowed folder. The file that the user names as the model may be anywhere.
//  2. The check uses the path of the opened descriptor, so that a link cannot be changed between
//     check and reading. Only regular files are ever opened for reading.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::load {

// Closes what it holds.
class OpenFile {
 public:
  OpenFile(int fd, int64_t size) : fd_(fd), size_(size) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile& operator=(OpenFile&&) = delete;

  int fd() const { return fd_; }
  int64_t size() const { return size_; }

 private:
  int fd_;
  int64_t size_;
};

class ModelRoots {
 public:
  // `model` is a folder or a file that exists; `allowed` are further folders
  // (--allowed-model-root). NOT_FOUND or FAILED_PRECONDITION naming one that cannot be used.
  static absl::StatusOr<ModelRoots> Of(const std::string& model,
                                       const std::vector<std::string>& allowed);

  // NOT_FOUND where there is nothing; FAILED_PRECONDITION naming the path where it is no regular
  // file, cannot be read, or is elsewhere.
  absl::StatusOr<OpenFile> Open(const std::string& path) const;

 private:
  std::vector<std::string> roots_;  // without links; none but "/" ends in a slash
  std::string file_;                // the model, where it is a file
};

// The folder `models--…` of a Hugging Face cache that contains the folder `path`, a snapshot; empty
// for others.
std::string HubFolderOf(const std::string& path);

}  // namespace quire::load
