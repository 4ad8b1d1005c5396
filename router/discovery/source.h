// What finds workers: a source tells its whole list, and tells it again whenever it changes.
//
// Owner: main; everything happens on the router's executor. A source that cannot see keeps silent:
// its last list holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"

namespace quire {

// Targets are HOST:PORT, sorted, each once. Replaces what this source said before.
using WorkersFound =
    std::function<void(const std::string& source, std::vector<std::string> targets)>;

class WorkerSource {
 public:
  virtual ~WorkerSource() = default;
  virtual void Start() = 0;  // once
};

// What sources live in. It and all of it outlive them.
struct DiscoveryRuntime {
  Executor& executor;
  Background& background;
  Files& files;
  Rng& rng;
  Logger& logger;
  WorkersFound found;
};

// Of all sources of one kind; made once for each kind.
struct SourceMetrics {
  SourceMetrics(Metrics& metrics, const std::string& flag);
  Counter& changes;
  Counter& failures;
  Gauge& workers;
};

// What every source says: its list when it changed, to the log when it broke or healed, to the
// metrics both.
class SourceReport {
 public:
  // `flag` without dashes, as in "worker-dns", and its value.
  SourceReport(std::string flag, std::string value, const DiscoveryRuntime& runtime,
               SourceMetrics& metrics);

  void Found(std::vector<std::string> targets);
  // The same trouble is logged once until it ends or changes.
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
