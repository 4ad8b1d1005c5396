// Spans on their way to a collector: a bounded queue and one thread that empties it.
//
// Owner: main. Offer may be called on any thread and never waits: it takes a lock for the time of a
// move. The thread makes messages and sends them, one at a time.
//  1. At most max_queue spans wait; more are dropped and counted.
//  2. A batch that could not be delivered is counted and dropped: a collector that is down costs
//     only spans. Failures are 1 s to 30 s apart, doubling, in which the queue fills up.
//  3. Its destructor sends what waits, once, and takes last_exports_ms at most, whatever collectors
//     or name resolvers do: a thread that is held longer is abandoned with everything that it
//     needs, and reports nothing more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/status.h"
#include "common/trace/settings.h"

namespace quire::trace {

// Sends one message; returns when it was answered, has failed, or soon after `given_up`. Called on
// the exporter's thread, which may outlive the exporter: it owns everything that it needs.
using SendFunction =
    std::function<absl::Status(const std::string& message, const std::atomic<bool>& given_up)>;

// The wall time at which a clock that shows `now_us` was 0. Read once: a wall clock that is set
// later does not shift spans against each other.
int64_t UnixNsAtZero(int64_t now_us);

// The counters exist also where nothing is exported, so that dashboards show zeros.
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
  struct Shared;  // shared with the thread

  const TraceMetrics metrics_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Posts to settings.url as application/x-protobuf.
SendFunction HttpSender(const TraceSettings& settings);

}  // namespace quire::trace
