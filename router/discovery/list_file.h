// Workers from a file, one HOST:PORT on each line; empty lines and text after a # are ignored.
//
// Owner: main, on the router's executor; the file is watched. It is applied as a whole: a file with
// an invalid line changes nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/watched_files.h"
#include "router/discovery/source.h"

namespace quire {

inline constexpr size_t kMaxWorkerFileBytes = 1u << 20;

// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<std::string>> ParseWorkerList(std::string_view text);

class ListFileSource final : public WorkerSource {
 public:
  // A file that is wrong at the start is the operator's mistake: the error names the path.
  static absl::StatusOr<std::unique_ptr<ListFileSource>> Make(const std::string& path,
                                                              const DiscoveryRuntime& runtime,
                                                              SourceMetrics& metrics);
  void Start() override;

 private:
  ListFileSource(const std::string& path, const DiscoveryRuntime& runtime, SourceMetrics& metrics);
  void OnRead(const absl::StatusOr<FileContents>& contents);

  const DiscoveryRuntime& runtime_;
  const WatchedFilesOptions options_;
  SourceReport report_;
  FileContents known_;  // from the start until it is watched
  std::unique_ptr<WatchedFiles> watch_;
};

}  // namespace quire
