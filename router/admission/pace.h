// The times at which the last few requests left, from which a Retry-After is computed.
//
// A value; time is an argument.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/runtime/runtime.h"

namespace quire {

class Pace {
 public:
  void Left(Micros now) {
    times_[count_ % times_.size()] = now;
    ++count_;
  }

  // The time until `count` more have left at the pace of the last ones, in 1 s … 1 min: a client
  // that retries sooner is only refused again, and a longer time is a guess. A standstill makes it
  // longer.
  uint32_t RetryAfterMs(size_t count, Micros now) const {
    if (count_ == 0) return kLeastMs;
    const size_t known = std::min(count_, times_.size());
    const Micros oldest = times_[(count_ - known) % times_.size()];
    const double each = static_cast<double>(now - oldest) / static_cast<double>(known);
    const double ms = each * static_cast<double>(count) / kMicrosPerMilli;
    return static_cast<uint32_t>(std::clamp<double>(ms, kLeastMs, kMostMs));
  }

  static constexpr uint32_t kLeastMs = 1000;
  static constexpr uint32_t kMostMs = 60'000;

 private:
  std::array<Micros, 32> times_{};
  size_t count_ = 0;
};

}  // namespace quire
