// Files that may change while the program runs: read periodically, and reported when they differ.
//
// Owner: the user of their contents; event loop only. They are read in the background, since a disk
// may be slow.
//
// Invariants:
// 1. Contents are reported once for each change, all files together; never from inside a
//    constructor.
// 2. A file that cannot be read changes nothing: it is reported once as an error, and the contents
//    once more when they can be read again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/timer.h"

namespace quire {

struct WatchedFilesOptions {
  std::vector<std::string> paths;
  size_t max_bytes = 4u << 20;  // of each
  Micros interval = kMicrosPerSecond;
};

using FileContents = std::vector<std::string>;  // in the order of the paths

// The contents of all paths now; the error names the one that is missing, unreadable or too large.
absl::StatusOr<FileContents> ReadAll(Files& files, const WatchedFilesOptions& options);

// The content of a file that holds one line, like those of tokens and secrets, without the line
// end.
std::string OneLine(std::string text);
absl::StatusOr<std::string> ReadOneLine(Files& files, const std::string& path, size_t max_bytes);

class WatchedFiles {
 public:
  using OnRead = std::function<void(absl::StatusOr<FileContents>)>;

  struct World {
    Executor& executor;
    Background& background;
    Files& files;  // is read on background threads
  };

  // `known`: the contents that the caller has already read.
  WatchedFiles(const World& world, WatchedFilesOptions options, FileContents known, OnRead on_read);

 private:
  struct Job;
  void Schedule();
  void Read();
  void Done(absl::StatusOr<FileContents> contents);

  const World world_;
  const std::shared_ptr<const WatchedFilesOptions> options_;  // and jobs in the background
  FileContents known_;
  bool failing_ = false;
  OnRead on_read_;
  Timer timer_{world_.executor};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by posted work
};

}  // namespace quire
