#include "router/worker_metrics.h"

#include <utility>

#include "common/metrics/merge.h"

namespace quire {

struct WorkerMetrics::Reader final : FetchReceiver {
  explicit Reader(WorkerMetrics& owner) : owner(owner) {}

  void OnHead(int status, uint32_t) override { good = status == 200; }
  void OnBody(std::string_view bytes) override {
    good = good && text.size() + bytes.size() <= kMaxWorkerMetricsBytes;
    if (good) text += bytes;
  }
  void OnEnd(const absl::Status& status) override {
    good = good && status.ok();
    owner.OnRead();
  }

  WorkerMetrics& owner;
  std::unique_ptr<Fetch> fetch;
  std::string text;
  bool good = false;
};

WorkerMetrics::WorkerMetrics(std::vector<std::unique_ptr<Fetcher>> fetchers, Metrics& metrics,
                             Executor& executor)
    : metrics_(metrics), executor_(executor), failures_(WorkerMetricsFailures(metrics)) {
  for (std::unique_ptr<Fetcher>& fetcher : fetchers) {
    workers_.push_back({std::to_string(workers_.size()), std::move(fetcher)});
  }
}

Counter& WorkerMetricsFailures(Metrics& metrics) {
  return metrics.AddCounter({"quire_router_worker_metrics_failures_total",
                             "Times that a worker's metrics could not be had."});
}

WorkerMetrics::~WorkerMetrics() = default;

void WorkerMetrics::Ask(std::function<void(std::string)> done) {
  waiting_.push_back(std::move(done));
  if (waiting_.size() > 1) return;
  if (replacement_) workers_ = *std::exchange(replacement_, std::nullopt);
  unread_ = workers_.size();
  for (const Worker& worker : workers_) {
    Reader& reader = *readers_.emplace_back(std::make_unique<Reader>(*this));
    reader.fetch = worker.fetcher->Get("/metrics", kWorkerMetricsPatience, reader);
  }
  if (unread_ == 0) Finish();
}

void WorkerMetrics::Replace(std::vector<Worker> workers) { replacement_ = std::move(workers); }

// The answer is made in a separate turn: a reader that calls back here must not be destroyed yet.
void WorkerMetrics::OnRead() {
  if (--unread_ == 0) Finish();
}

void WorkerMetrics::Finish() {
  executor_.Post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    for (const auto& reader : readers_) failures_.Add(reader->good ? 0 : 1);
    std::vector<MetricsPart> parts = {{"", metrics_.Render()}};
    for (size_t i = 0; i < readers_.size(); ++i) {
      if (readers_[i]->good) parts.push_back({workers_[i].label, std::move(readers_[i]->text)});
    }
    readers_.clear();
    const std::string text = MergeMetrics(parts);
    for (const auto& done : std::exchange(waiting_, {})) done(text);
  });
}

}  // namespace quire
