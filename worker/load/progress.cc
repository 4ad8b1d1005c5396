#include "worker/load/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::load {
namespace {

// Bytes per second so far; 0 when no time has passed.
double Rate(const ProgressUpdate& update, double seconds) {
  return seconds > 0.0 ? static_cast<double>(update.done_bytes) / seconds : 0.0;
}

// Seconds left at that rate; negative when unknown.
double SecondsLeft(const ProgressUpdate& update, double seconds) {
  const double rate = Rate(update, seconds);
  return rate > 0.0 ? static_cast<double>(update.total_bytes - update.done_bytes) / rate : -1.0;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000.0;
    ++unit;
  }
  const int digits = unit == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %s", digits, value, kUnits[unit]);
}

std::optional<std::string> LoadProgress::Update(const ProgressUpdate& update, double now_seconds) {
  const bool begins = phase_ != update.phase;
  if (begins) {
    phase_ = std::string(update.phase);
    phase_start_seconds_ = now_seconds;
    ended_ = false;
  }
  const bool ends = update.done_bytes >= update.total_bytes;
  if (ended_) return std::nullopt;
  if (!begins && !ends && now_seconds - last_line_seconds_ < kMinProgressIntervalSeconds) {
    return std::nullopt;
  }
  last_line_seconds_ = now_seconds;
  ended_ = ends;
  const double seconds = now_seconds - phase_start_seconds_;
  return style_ == Style::kBar ? Bar(update, seconds, ends) : JsonLine(update, seconds);
}

std::string LoadProgress::Bar(const ProgressUpdate& update, double seconds, bool ended) const {
  constexpr int kCells = 30;
  const double fraction = update.total_bytes > 0
                              ? std::clamp(static_cast<double>(update.done_bytes) /
                                               static_cast<double>(update.total_bytes),
                                           0.0, 1.0)
                              : 1.0;
  const int filled = static_cast<int>(fraction * kCells);
  std::string line =
      absl::StrFormat("\r%-8s [%s%s] %3.0f%% %s of %s", phase_, std::string(filled, '#'),
                      std::string(kCells - filled, '.'), fraction * 100.0,
                      BytesText(update.done_bytes), BytesText(update.total_bytes));
  if (const double rate = Rate(update, seconds); rate > 0.0) {
    absl::StrAppend(&line, ", ", BytesText(static_cast<int64_t>(rate)), "/s");
  }
  if (ended) {
    absl::StrAppendFormat(&line, ", %.1f s", seconds);
  } else if (const double left = SecondsLeft(update, seconds); left >= 0.0) {
    absl::StrAppendFormat(&line, ", %.0f s left", std::ceil(left));
  }
  // Overwrites the rest of an earlier, longer line.
  absl::StrAppend(&line, "\x1b[K", ended ? "\n" : "");
  return line;
}

std::string LoadProgress::JsonLine(const ProgressUpdate& update, double seconds) const {
  json::Object line;
  line["event"] = "load_progress";
  line["phase"] = json::BoostView(phase_);
  line["done_bytes"] = update.done_bytes;
  line["total_bytes"] = update.total_bytes;
  line["seconds"] = std::round(seconds * 1000.0) / 1000.0;
  line["bytes_per_second"] = std::round(Rate(update, seconds));
  if (const double left = SecondsLeft(update, seconds); left >= 0.0) {
    line["eta_seconds"] = std::round(left * 1000.0) / 1000.0;
  }
  return json::Serialize(line) + "\n";
}

}  // namespace quire::load
