// Workers from a file: a line each, HOST:PORT; empty lines and what follows a # are nothing.
//
// Owner: main, on the router's executor; the file is read in the background. It is read again every
// second and taken whole: a file with a line that makes no sense changes nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "router/discovery/source.h"

namespace quire {

inline constexpr size_t kMaxWorkerFileBytes = 1u << 20;

// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<std::string>> ParseWorkerList(std::string_view text);
// As the file stands now, for main to refuse a bad one at start; the errors name the path.
absl::StatusOr<std::vector<std::string>> ReadWorkerList(Files& files, const std::string& path);

class ListFileSource final : public WorkerSource {
 public:
  static constexpr Micros kInterval = kMicrosPerSecond;

  ListFileSource(std::string path, const DiscoveryRuntime& runtime, SourceMetrics& metrics);
  ~ListFileSource() override;
  void Start() override;

 private:
  void Look();

  const std::string path_;
  const DiscoveryRuntime& runtime_;
  SourceReport report_;
  TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by background work
};

}  // namespace quire
