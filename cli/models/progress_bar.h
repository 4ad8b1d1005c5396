// How far a long transfer is: a bar with rate and time left on a terminal, else a line now and
// then.
//
// Owner: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace quire::cli {

// "1.2 GB of 2.5 GB, 45 MB/s, 29 s left"; a rate of 0 is not shown. Pure.
std::string ProgressText(int64_t here, int64_t total, double bytes_per_second);
// "350 MB", "2.5 GB": as files are sold.
std::string SizeText(double bytes);

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar() { End(); }
  void Show(int64_t here, int64_t total);
  // Leaves the bar's line.
  void End();

 private:
  using Time = std::chrono::steady_clock::time_point;
  double Rate(int64_t here);

  const std::string what_;
  const bool is_terminal_;
  bool line_is_open_ = false;
  int tenths_shown_ = -1;                         // of a file or pipe
  std::deque<std::pair<Time, int64_t>> samples_;  // of the last seconds
};

}  // namespace quire::cli
