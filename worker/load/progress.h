// How far loading has come: phases with bytes, rate and time left, as a bar or as JSON lines.
//
// A LoadProgress belongs to the loader, which passes the time in, on one thread, and prints what it
// returns.
// 1. Lines come at most every kMinInterval, and always at a phase's end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace quire::load {

// A phase ("open", "pack", …) has processed `done` of `total` bytes. The last call of a phase has
// done == total.
struct ProgressUpdate {
  std::string_view phase;
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
};
using ProgressSink = std::function<void(const ProgressUpdate&)>;

inline constexpr double kMinProgressIntervalSeconds = 0.1;

class LoadProgress {
 public:
  enum class Style {
    kBar,        // one line redrawn in place, "\r" before it, "\n" after a phase's end
    kJsonLines,  // one object per line
  };
  explicit LoadProgress(Style style) : style_(style) {}

  // What to print now, if anything. `now_seconds` must not fall.
  std::optional<std::string> Update(const ProgressUpdate& update, double now_seconds);

 private:
  std::string Bar(const ProgressUpdate& update, double seconds, bool ended) const;
  std::string JsonLine(const ProgressUpdate& update, double seconds) const;

  Style style_;
  std::string phase_;
  double phase_start_seconds_ = 0.0;
  double last_line_seconds_ = 0.0;
  bool ended_ = false;
};

// "253 MB", "1.4 GB": decimal units, three digits.
std::string BytesText(int64_t bytes);

}  // namespace quire::load
