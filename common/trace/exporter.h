// Spans on their way to a collector: a bounded queue and one thread that empties it.
//
// Owner: main. Offer may be called on any thread and never waits: it takes a lock for the time of a
// move. The thread makes messages and sends them, one at a time.
//  1. At most max_queue spans wait; more are dropped and counted.
//  2. A batch that could not be delivered is counted and dropped: a collector that is down costs
//  its
//     spans and nothing else. Between failures lie 1 s to 30 s, doubling, in which the queue fills
//     up.
//  3. Stop sends what waits, once, within the timeout of one export.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/status.h"
#include "common/trace/settings.h"

namespace quire::trace {

// Sends one message; returns when it was answered or has failed. Called on the exporter's thread.
using SendFunction = std::function<absl::Status(const std::string& message)>;

// There also where nothing is exported, so that dashboards see zeros.
struct TraceMetrics {
  // `prefix` begins their names: "quire_router".
  TraceMetrics(Metrics& metrics, const std::string& prefix);

  Counter& exported;
  Counter& dropped;
  Counter& failures;
};

class Exporter {
 public:
  // `metrics` and `log` outlive it.
  Exporter(const TraceSettings& settings, SendFunction send, const TraceMetrics& metrics,
           Logger& log);
  ~Exporter();
  Exporter(const Exporter&) = delete;

  void Offer(std::vector<Span> spans);

 private:
  void Run();
  std::vector<Span> NextBatch(bool& stopping);
  bool Deliver(const std::vector<Span>& batch);

  const TraceSettings settings_;
  const SendFunction send_;
  const TraceMetrics metrics_;
  Logger& log_;
  std::mutex mutex_;  // guards the three below
  std::condition_variable wake_;
  std::deque<Span> queue_;
  bool stopping_ = false;
  int64_t pause_ms_ = 0;  // the thread's own
  std::thread thread_;
};

// Posts to settings.url as application/x-protobuf.
SendFunction HttpSender(const TraceSettings& settings);

}  // namespace quire::trace
