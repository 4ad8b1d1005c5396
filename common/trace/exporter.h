// Spans on their way to a collector: a bounded queue and one thread that empties it.
//
// Owner: main. Offer may be called on any thread and never waits: it takes a lock for the time of a
// move. The thread makes messages and sends them, one at a time.
//  1. At most max_queue spans wait; more are dropped and counted.
//  2. A batch that could not be delivered is counted and dropped: of a collector that is down only
//     spans are lost. Between failures lie 1 s to 30 s, doubling, in which the queue fills up.
//  3. Its end sends what waits, once, and takes last_exports_ms at most, whatever collectors or
//     resolvers of names do: a thread that is held longer is left alone with what it needs, and
//     has no word any more.
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
// the exporter's thread, which may outlive the exporter: it owns what it needs.
using SendFunction =
    std::function<absl::Status(const std::string& message, const std::atomic<bool>& given_up)>;

// The wall time at which a clock that says `now_us` stood at 0. Asked once: a wall clock that is
// set later moves no span against another.
int64_t UnixNsAtZero(int64_t now_us);

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
  struct Shared;  // with the thread

  const TraceMetrics metrics_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Posts to settings.url as application/x-protobuf.
SendFunction HttpSender(const TraceSettings& settings);

}  // namespace quire::trace
