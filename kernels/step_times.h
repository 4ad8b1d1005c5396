// Where the time of a CPU's steps goes, for benches.
#pragma once

#include <array>
#include <chrono>
#include <variant>

#include "kernels/step_program.h"

namespace quire::kernels {

// Seconds, summed over steps, by the clock of the thread that calls Run. A program without it reads
// no clock.
struct StepTimes {
  double steps = 0;
  std::array<double, std::variant_size_v<Op>> ops = {};  // by index of the op's kind
  double routing = 0;  // within mixtures: scores, choices, rows sorted by expert
  double idle = 0;  // within jobs, of a thread that waits for the others; the mean of all threads
};

// Adds the time of its life to *seconds; null: reads no clock.
class PartTimer {
 public:
  explicit PartTimer(double* seconds) : seconds_(seconds) {
    if (seconds_ != nullptr) begin_ = Clock::now();
  }
  ~PartTimer() {
    if (seconds_ == nullptr) return;
    *seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* const seconds_;
  Clock::time_point begin_;
};

}  // namespace quire::kernels
