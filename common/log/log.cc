#include "common/log/log.h"

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace quire {
namespace {

// Messages from here are marks in the queue and no lines.
constexpr const char* kMark = "mark";

// Writes ready-made lines to a file descriptor, whole, whatever the pipe takes at once. A mark
// reports that everything before it is written: it carries a ticket, taken after the lines that it
// is for were queued, so that the mark of a later ticket covers it too.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int file_descriptor) : file_descriptor_(file_descriptor) {}

  // Waits for the mark of `ticket` or of a later one, at most kMaxLogFlush: whether it came.
  bool AwaitMark(int ticket) {
    std::unique_lock<std::mutex> lock(marks_mutex_);
    return marked_.wait_for(lock, kMaxLogFlush, [&] { return last_mark_ >= ticket; });
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.source.filename == kMark) return TakeMark(message.source.line);
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
      const ssize_t written = write(file_descriptor_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;  // the output is gone: there is no other place to report it
      rest.remove_prefix(static_cast<size_t>(written));
    }
  }
  void flush_() override {}  // nothing is kept
  void TakeMark(int ticket) {
    {
      const std::lock_guard<std::mutex> lock(marks_mutex_);
      last_mark_ = std::max(last_mark_, ticket);
    }
    marked_.notify_all();
  }

  const int file_descriptor_;
  std::mutex marks_mutex_;
  std::condition_variable marked_;
  int last_mark_ = 0;  // guarded by marks_mutex_
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

class SpdlogLogger final : public Logger {
 public:
  explicit SpdlogLogger(const LoggerOptions& options)
      : Logger(options.level),
        json_(options.format == LogFormat::kJson ||
              (options.format == LogFormat::kAuto && isatty(options.file_descriptor) == 0)),
        // One thread behind a queue; spdlog shares both with the logger, which needs shared
        // pointers.
        pool_(std::make_shared<spdlog::details::thread_pool>(kMaxQueuedLogLines, 1)),
        sink_(std::make_shared<DescriptorSink>(options.file_descriptor)),
        logger_(std::make_shared<spdlog::async_logger>(
            "quire", sink_, pool_, spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_level(spdlog::level::trace);
  }

  bool Flush() override {
    const int ticket = tickets_.fetch_add(1) + 1;
    logger_->log({kMark, ticket, ""}, spdlog::level::critical, "");
    return sink_->AwaitMark(ticket);
  }
  uint64_t DroppedCount() const override { return pool_->overrun_counter(); }

 private:
  void Write(LogLevel level, std::string_view message, std::span<const LogField> fields) override {
    const int64_t unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(
                                    std::chrono::system_clock::now().time_since_epoch())
                                    .count();
    const std::string line = json_ ? FormatJsonLine(unix_micros, level, message, fields)
                                   : FormatTextLine(unix_micros, level, message, fields);
    logger_->log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
  }

  const bool json_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<DescriptorSink> sink_;
  std::shared_ptr<spdlog::async_logger> logger_;
  std::atomic<int> tickets_ = 0;
};

}  // namespace

std::unique_ptr<Logger> MakeLogger(const LoggerOptions& options) {
  return std::make_unique<SpdlogLogger>(options);
}

}  // namespace quire
