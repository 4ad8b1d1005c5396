// Where a model's files may lie: a model is foreign, and a link in it could lead to any file that
// this process can read, whose text clients would then be served.
//
// A value; any thread.
//  1. What is opened is a regular file that lies, all links followed, below the model's folder, in
//     the same folder `models--…` of a Hugging Face cache (snapshots link to ../../blobs there), or
//     below a folder that was allowed. The file named as the model itself may lie anywhere.
//  2. The opened descriptor is asked where it lies, so that a link cannot be changed between the
//     question and the reading. Nothing but a regular file is ever opened for reading.
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
  // file, cannot be read, or lies elsewhere.
  absl::StatusOr<OpenFile> Open(const std::string& path) const;

 private:
  std::vector<std::string> roots_;  // without links; none but "/" ends in a slash
  std::string file_;                // the model, where it is a file
};

// The folder `models--…` of a Hugging Face cache that the folder `path`, a snapshot, lies in; empty
// for others.
std::string HubFolderOf(const std::string& path);

}  // namespace quire::load
