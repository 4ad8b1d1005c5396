// The program's log: levels, a message, key/value fields; text for people, JSON lines for machines.
//
// main makes one Logger and passes it down by reference (no process-wide logger: a test or a
// simulated worker has its own). Any thread may write. Writing never waits for the terminal or pipe
// behind it: lines go through a bounded queue, and when that is full the oldest are dropped and
// counted.
//  1. A line is at most kMaxLogLineBytes; longer values are cut and marked as cut.
//  2. Text of prompts and answers is never logged; callers pass ids, counts and names.
//  3. Control characters never reach the output unescaped: a value cannot forge a line.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quire {

inline constexpr size_t kMaxLogLineBytes = 8192;
inline constexpr size_t kMaxLogValueBytes = 1024;
inline constexpr size_t kMaxQueuedLogLines = 4096;
inline constexpr std::chrono::milliseconds kMaxLogFlush{200};

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// The text of one value, and whether JSON shows it unquoted (numbers, bools) or as a string.
struct LogValue {
  // NOLINTBEGIN(google-explicit-constructor): so that {"key", value} takes any value.
  LogValue(std::string_view value) : text(value) {}
  LogValue(const std::string& value) : text(value) {}
  LogValue(const char* value) : text(value) {}
  LogValue(bool value) : text(value ? "true" : "false"), bare(true) {}
  LogValue(double value);  // NaN and infinity as strings
  template <std::integral Value>
  LogValue(Value value) : text(std::to_string(value)), bare(true) {}
  // NOLINTEND
  std::string text;
  bool bare = false;
};

struct LogField {
  std::string_view key;
  LogValue value;
};
using LogFields = std::initializer_list<LogField>;

class Logger {
 public:
  virtual ~Logger() = default;
  bool Enabled(LogLevel level) const { return level >= this->level(); }
  LogLevel level() const { return level_.load(std::memory_order_relaxed); }
  // Any thread; applies to lines from now on.
  void SetLevel(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  void Debug(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kInfo, message, fields);
  }
  void Warning(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kWarning, message, fields);
  }
  void Error(std::string_view message, LogFields fields = {}) {
    Log(LogLevel::kError, message, fields);
  }
  void Log(LogLevel level, std::string_view message, LogFields fields) {
    if (Enabled(level)) Write(level, message, {fields.begin(), fields.size()});
  }
  // Waits until the lines so far are written, at most kMaxLogFlush: call it before a program prints
  // its own last line for people. Any thread; returns whether they are written.
  virtual bool Flush() { return true; }
  // Lines lost because the queue was full.
  virtual uint64_t DroppedCount() const { return 0; }

 protected:
  explicit Logger(LogLevel level) : level_(level) {}
  virtual void Write(LogLevel level, std::string_view message,
                     std::span<const LogField> fields) = 0;

 private:
  std::atomic<LogLevel> level_;
};

// Logs nothing; for tests and tools.
class NullLogger final : public Logger {
 public:
  NullLogger() : Logger(LogLevel::kOff) {}

 private:
  void Write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

enum class LogFormat : uint8_t { kAuto, kText, kJson };  // kAuto: text when the file is a terminal

struct LoggerOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kAuto;
  int file_descriptor = 2;  // standard error; stays open, is not owned
};

// Writes the queued lines when destroyed.
std::unique_ptr<Logger> MakeLogger(const LoggerOptions& options);

// One line without its newline; `unix_micros` is wall time.
std::string FormatTextLine(int64_t unix_micros, LogLevel level, std::string_view message,
                           std::span<const LogField> fields);
std::string FormatJsonLine(int64_t unix_micros, LogLevel level, std::string_view message,
                           std::span<const LogField> fields);

// "debug", "info", "warning", "error", "off"; the names that --log-level takes.
std::string_view LogLevelName(LogLevel level);
LogLevel LogLevelFromName(std::string_view name);  // kInfo for another name

}  // namespace quire
