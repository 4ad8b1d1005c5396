#include "common/trace/exporter.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>

#include "common/client/http_client_asio.h"
#include "common/trace/otlp.h"

namespace quire::trace {
namespace {

constexpr int64_t kFirstPauseMs = 1000;
constexpr int64_t kLastPauseMs = 30'000;

constexpr int kGzipWindow = 15 + 16;  // zlib's largest, with gzip's header
constexpr int kGzipMemory = 8;

absl::StatusOr<std::string> Gzip(const std::string& plain) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kGzipMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("zlib: no memory");
  }
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError("zlib: the message did not fit");
  return packed;
}

}  // namespace

int64_t UnixNsAtZero(int64_t now_us) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - now_us * 1000;
}

TraceMetrics::TraceMetrics(Metrics& metrics, const std::string& prefix)
    : exported(metrics.AddCounter(
          {prefix + "_trace_spans_exported_total", "Spans that the collector took."})),
      dropped(metrics.AddCounter({prefix + "_trace_spans_dropped_total",
                                  "Spans lost to a full queue or to a collector that was away."})),
      failures(metrics.AddCounter(
          {prefix + "_trace_export_failures_total", "Exports that the collector did not take."})) {}

struct Exporter::Shared {
  Shared(const TraceSettings& trace_settings, SendFunction send_function,
         const TraceMetrics& trace_metrics, Logger& logger)
      : settings(trace_settings),
        send(std::move(send_function)),
        metrics(trace_metrics),
        log(logger) {}

  void Run();
  std::vector<Span> NextBatch(bool& ending);
  bool Deliver(const std::vector<Span>& batch);
  bool Delivered(size_t spans, const absl::Status& sent);

  const TraceSettings settings;
  const SendFunction send;
  std::mutex ours;  // held while the two below are used, and guards the third
  const TraceMetrics metrics;
  Logger& log;
  bool left_alone = false;
  std::mutex mutex;  // guards the three below
  std::condition_variable wake;
  std::deque<Span> queue;
  bool stopping = false;
  bool done = false;
  std::atomic<bool> given_up{false};
  int64_t pause_ms = 0;  // the thread's own
};

Exporter::Exporter(const TraceSettings& settings, SendFunction send, const TraceMetrics& metrics,
                   Logger& log)
    : metrics_(metrics),
      shared_(std::make_shared<Shared>(settings, std::move(send), metrics, log)),
      thread_([shared = shared_] { shared->Run(); }) {}

Exporter::~Exporter() {
  Shared& shared = *shared_;
  std::unique_lock<std::mutex> lock(shared.mutex);
  shared.stopping = true;
  shared.wake.notify_all();
  const auto ended = [&shared] { return shared.done; };
  // Most of the time to send, the rest to stop sending.
  const std::chrono::milliseconds limit(shared.settings.last_exports_ms);
  if (!shared.wake.wait_for(lock, limit * 3 / 4, ended)) {
    shared.given_up = true;
    shared.wake.wait_for(lock, limit / 4, ended);
  }
  const bool done = shared.done;
  lock.unlock();
  if (done) {
    thread_.join();
    return;
  }
  const std::lock_guard<std::mutex> last_word(shared.ours);
  shared.left_alone = true;
  thread_.detach();
}

void Exporter::Offer(std::vector<Span> spans) {
  Shared& shared = *shared_;
  size_t lost = 0;
  bool full_batch = false;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    for (Span& span : spans) {
      if (shared.queue.size() >= shared.settings.max_queue) {
        ++lost;
      } else {
        shared.queue.push_back(std::move(span));
      }
    }
    full_batch = shared.queue.size() >= shared.settings.max_batch;
  }
  metrics_.dropped.Add(lost);
  if (full_batch) shared.wake.notify_one();
}

// Waits for a batch, or for the delay; after a failure for its pause, whatever the queue holds.
std::vector<Span> Exporter::Shared::NextBatch(bool& ending) {
  std::unique_lock<std::mutex> lock(mutex);
  const auto delay = std::chrono::milliseconds(pause_ms > 0 ? pause_ms : settings.delay_ms);
  wake.wait_for(lock, delay, [this] {
    return stopping || (pause_ms == 0 && queue.size() >= settings.max_batch);
  });
  ending = stopping;
  const size_t count = std::min(queue.size(), settings.max_batch);
  std::vector<Span> batch(std::make_move_iterator(queue.begin()),
                          std::make_move_iterator(queue.begin() + static_cast<ptrdiff_t>(count)));
  queue.erase(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(count));
  return batch;
}

bool Exporter::Shared::Deliver(const std::vector<Span>& batch) {
  const absl::Status sent = send(EncodeOtlp(settings.resource, batch), given_up);
  const std::lock_guard<std::mutex> lock(ours);
  return !left_alone && Delivered(batch.size(), sent);
}

bool Exporter::Shared::Delivered(size_t spans, const absl::Status& sent) {
  if (sent.ok()) {
    metrics.exported.Add(spans);
    if (pause_ms > 0) log.Info("traces are exported again", {{"to", ShownUrl(settings.url)}});
    pause_ms = 0;
    return true;
  }
  metrics.failures.Add();
  metrics.dropped.Add(spans);
  // One line for each time that it becomes unreachable, not for each attempt.
  if (pause_ms == 0) {
    log.Warning("traces cannot be exported; they are dropped until the collector is back",
                {{"to", ShownUrl(settings.url)}, {"why", StatusMessage(sent)}});
  }
  pause_ms = std::min(std::max(2 * pause_ms, kFirstPauseMs), kLastPauseMs);
  return false;
}

void Exporter::Shared::Run() {
  bool ending = false;
  while (!ending) {
    std::vector<Span> batch = NextBatch(ending);
    while (!batch.empty()) {
      if (!Deliver(batch)) break;
      if (!ending) break;
      bool again = false;
      batch = NextBatch(again);
    }
  }
  const std::lock_guard<std::mutex> used(ours);
  if (left_alone) return;
  const std::lock_guard<std::mutex> lock(mutex);
  metrics.dropped.Add(queue.size());  // left by a collector that was away at the end
  done = true;
  wake.notify_all();
}

SendFunction HttpSender(const TraceSettings& settings) {
  return [settings](const std::string& message, const std::atomic<bool>& given_up) -> absl::Status {
    const size_t start = settings.url.find("://") + 3;
    const size_t slash = std::min(settings.url.find('/', start), settings.url.size());
    QUIRE_ASSIGN_OR_RETURN(client::Url url, client::ParseUrl(settings.url.substr(0, slash)));
    url.authorities = settings.certificate_file;
    url.limit_ms = settings.timeout_ms;
    client::HttpRequest request;
    request.method = "POST";
    request.path = slash < settings.url.size() ? settings.url.substr(slash) : "/";
    request.content_type = "application/x-protobuf";
    request.headers = settings.headers;
    if (settings.gzip) {
      QUIRE_ASSIGN_OR_RETURN(request.body, Gzip(message));
      request.headers.emplace_back("Content-Encoding", "gzip");
    } else {
      request.body = message;
    }
    QUIRE_ASSIGN_OR_RETURN(
        const client::HttpAnswer answer,
        client::Exchange(url, request, given_up, [](std::string_view) { return true; }));
    if (answer.status >= 200 && answer.status < 300) return absl::OkStatus();
    return absl::UnavailableError(
        AbslView("the collector answered with status " + std::to_string(answer.status)));
  };
}

}  // namespace quire::trace
