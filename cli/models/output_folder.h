// A folder that a model is written into: whole, or gone again.
//
// Blocking. The name that makes the folder a model (config.json, *.gguf) is put in its place last.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace quire::cli {

// A new file. Errors are RESOURCE_EXHAUSTED for a full disk, else FAILED_PRECONDITION with its
// path.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  absl::Status status() const;
  // Allocates the space at once where the file system can, so that a full disk is detected before
  // the work.
  absl::Status Reserve(int64_t bytes) const;
  // Any thread.
  absl::Status Write(int64_t offset, std::span<const std::byte> bytes) const;
  absl::Status Close();

 private:
  std::string path_;
  int fd_;
};

absl::Status WriteText(const std::string& path, const std::string& text);

// `path` + ".part" becomes `path`.
absl::Status PutInPlace(const std::string& path);

// Creates the folder, or uses an empty one. Returns whether it was created; INVALID_ARGUMENT for
// one that holds something.
absl::StatusOr<bool> TakeFolder(const std::string& folder);

// The files in a folder while it is written; they are removed when that fails.
class OutputFolder {
 public:
  OutputFolder(std::string path, bool made) : path_(std::move(path)), made_(made) {}
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The path of a file that is about to be written.
  std::string Path(const std::string& name);
  void Keep() { kept_ = true; }

 private:
  std::string path_;
  bool made_;
  bool kept_ = false;
  std::vector<std::string> names_;
};

// OK where `free` bytes take `needed`, else RESOURCE_EXHAUSTED that names both. Pure.
absl::Status CheckRoom(const std::string& folder, int64_t needed, int64_t free);
// The same for the folder's file system, where that reports its size.
absl::Status CheckRoomOnDisk(const std::string& folder, int64_t needed);

// Calls `work` once with each of 0 … count − 1, on `threads` threads that live within the call. The
// first error ends it. CANCELLED once `interrupted` (or null) is set.
absl::Status RunTickets(size_t count, int threads, const std::atomic<bool>* interrupted,
                        const std::function<absl::Status(size_t)>& work);

}  // namespace quire::cli
