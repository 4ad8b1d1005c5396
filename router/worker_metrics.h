// The workers' metrics together with the router's own, for a router that is the only way to its
// workers (`quire serve`).
//
// Owner: main; event loop only.
//  1. All callers that come while the workers are being scraped get the same answer; each worker is
//     scraped once.
//  2. A worker that does not answer within kWorkerMetricsPatience, or with more than
//     kMaxWorkerMetricsBytes, is left out and counted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "router/discovery/fetch.h"

namespace quire {

inline constexpr Micros kWorkerMetricsPatience = 2 * kMicrosPerSecond;
inline constexpr size_t kMaxWorkerMetricsBytes = 4u << 20;

// Counts failed scrapes of workers; the metric also exists where no worker is scraped.
Counter& WorkerMetricsFailures(Metrics& metrics);

class WorkerMetrics {
 public:
  // `fetchers`: one per worker; its place is its label. `metrics`, the router's own, and `executor`
  // outlive this object.
  WorkerMetrics(std::vector<std::unique_ptr<Fetcher>> fetchers, Metrics& metrics,
                Executor& executor);
  ~WorkerMetrics();

  struct Worker {
    std::string label;
    std::unique_ptr<Fetcher> fetcher;
  };
  // Other workers from the next time on.
  void Replace(std::vector<Worker> workers);

  // Calls `done` once, later, with everything as one text.
  void Ask(std::function<void(std::string)> done);

 private:
  struct Reader;
  void OnRead();
  void Finish();

  std::vector<Worker> workers_;
  std::optional<std::vector<Worker>> replacement_;  // for when the scrape under way has ended
  Metrics& metrics_;
  Executor& executor_;
  Counter& failures_;
  std::vector<std::unique_ptr<Reader>> readers_;  // while the workers are being scraped
  size_t unread_ = 0;
  std::vector<std::function<void(std::string)>> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by posted work
};

}  // namespace quire
