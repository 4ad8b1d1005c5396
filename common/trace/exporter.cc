#include "common/trace/exporter.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

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

Exporter::Exporter(const TraceSettings& settings, SendFunction send, const TraceMetrics& metrics,
                   Logger& log)
    : settings_(settings), send_(std::move(send)), metrics_(metrics), log_(log), thread_([this] {
        Run();
      }) {}

Exporter::~Exporter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(kLastExportsMs), [this] { return done_; });
  }
  given_up_ = true;
  thread_.join();
}

void Exporter::Offer(std::vector<Span> spans) {
  size_t lost = 0;
  bool full_batch = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Span& span : spans) {
      if (queue_.size() >= settings_.max_queue) {
        ++lost;
      } else {
        queue_.push_back(std::move(span));
      }
    }
    full_batch = queue_.size() >= settings_.max_batch;
  }
  metrics_.dropped.Add(lost);
  if (full_batch) wake_.notify_one();
}

// Waits for a batch, or for the delay; after a failure for its pause, whatever the queue holds.
std::vector<Span> Exporter::NextBatch(bool& stopping) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto delay = std::chrono::milliseconds(pause_ms_ > 0 ? pause_ms_ : settings_.delay_ms);
  wake_.wait_for(lock, delay, [this] {
    return stopping_ || (pause_ms_ == 0 && queue_.size() >= settings_.max_batch);
  });
  stopping = stopping_;
  const size_t count = std::min(queue_.size(), settings_.max_batch);
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()),
                          std::make_move_iterator(queue_.begin() + static_cast<ptrdiff_t>(count)));
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(count));
  return batch;
}

bool Exporter::Deliver(const std::vector<Span>& batch) {
  const absl::Status sent = send_(EncodeOtlp(settings_.resource, batch), given_up_);
  if (sent.ok()) {
    metrics_.exported.Add(batch.size());
    if (pause_ms_ > 0) log_.Info("traces are exported again", {{"to", settings_.url}});
    pause_ms_ = 0;
    return true;
  }
  metrics_.failures.Add();
  metrics_.dropped.Add(batch.size());
  // One line for each time that it goes away, not for each try.
  if (pause_ms_ == 0) {
    log_.Warning("traces cannot be exported; they are dropped until the collector is back",
                 {{"to", settings_.url}, {"why", StatusMessage(sent)}});
  }
  pause_ms_ = std::min(std::max(2 * pause_ms_, kFirstPauseMs), kLastPauseMs);
  return false;
}

void Exporter::Run() {
  bool stopping = false;
  while (!stopping) {
    std::vector<Span> batch = NextBatch(stopping);
    while (!batch.empty()) {
      if (!Deliver(batch)) break;
      if (!stopping) break;
      bool again = false;
      batch = NextBatch(again);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  metrics_.dropped.Add(queue_.size());  // left by a collector that was away at the end
  done_ = true;
  wake_.notify_all();
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
