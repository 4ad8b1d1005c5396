// A quota per minute as a token bucket: how much is left, and how long until enough is.
//
// Owner: one tenant's account. A value; time is an argument and never runs backwards.
//  1. The level never exceeds the capacity, which is a minute's worth, at least 1.
//  2. What turns out to cost more than was taken leaves a debt, which new work waits for.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/runtime/runtime.h"

namespace quire {

class TokenBucket {
 public:
  // A new bucket is full; a new rate keeps what is left, up to the new capacity.
  void SetRate(double per_minute, Micros now) {
    Refill(now);
    const bool fresh = per_minute_ == 0;
    per_minute_ = per_minute;
    level_ = fresh ? Capacity() : std::min(level_, Capacity());
  }
  bool limited() const { return per_minute_ > 0; }
  double Capacity() const { return std::max(1.0, per_minute_); }

  // Until `amount` is there; more than the capacity asks for a full bucket. 0: now.
  Micros WaitFor(double amount, Micros now) {
    if (!limited()) return 0;
    Refill(now);
    const double missing = std::min(amount, Capacity()) - level_;
    if (missing <= kRounding) return 0;
    return static_cast<Micros>(std::ceil(missing * kMinute / per_minute_));
  }
  // Negative amounts give back.
  void Take(double amount, Micros now) {
    if (!limited()) return;
    Refill(now);
    level_ = std::min(Capacity(), level_ - amount);
  }
  bool Full(Micros now) {
    Refill(now);
    return !limited() || level_ >= Capacity() - kRounding;
  }

 private:
  static constexpr double kMinute = 60.0 * kMicrosPerSecond;
  static constexpr double kRounding = 1e-9;  // of a division by three, say

  void Refill(Micros now) {
    if (limited()) {
      level_ += per_minute_ * static_cast<double>(now - filled_at_) / kMinute;
      level_ = std::min(level_, Capacity());
    }
    filled_at_ = now;
  }

  double per_minute_ = 0;
  double level_ = 0;
  Micros filled_at_ = 0;
};

}  // namespace quire
