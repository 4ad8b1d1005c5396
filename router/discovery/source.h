// What finds workers: a source reports its whole list, and reports it again whenever it changes.
//
// Owner: main; everything happens on the router's executor. A source that cannot reach its server
// reports nothing: its last list stays in use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"

namespace quire {

// Targets are HOST:PORT, sorted, each once. Replaces this source's previous list.
using WorkersFound =
    std::function<void(const std::string& source, std::vector<std::string> targets)>;

class WorkerSource {
 public:
  virtual ~WorkerSource() = default;
  virtual void Start() = 0;  // once
};

// The environment of sources. It and everything in it outlive them.
struct DiscoveryRuntime {
  Executor& executor;
  Background& background;
  Files& files;
  Rng& rng;
  Logger& logger;
  WorkersFound found;
};

// For all sources of one kind; made once for each kind.
struct SourceMetrics {
  SourceMetrics(Metrics& metrics, const std::string& flag);
  Counter& changes;
  Counter& failures;
  Gauge& workers;
};

// What every source reports: its list when it changes, failures and recoveries to the log, and both
// to the metrics.
class SourceReport {
 public:
  // `flag` without dashes, as in "worker-dns", and its value.
  SourceReport(std::string flag, std::string value, const DiscoveryRuntime& runtime,
               SourceMetrics& metrics);

  void Found(std::vector<std::string> targets);
  // The same failure is logged once until it ends or changes.
  void Failed(const absl::Status& why);

  bool found_any() const { return found_any_; }

 private:
  const std::string flag_;
  const std::string value_;
  const DiscoveryRuntime& runtime_;
  SourceMetrics& metrics_;
  std::vector<std::string> targets_;
  bool found_any_ = false;
  std::string trouble_;
};

}  // namespace quire
