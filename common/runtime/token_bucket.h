// A rate with a burst as a token bucket: how much is left, and how long until enough is.
//
// A value; time is an argument and never runs backwards.
//  1. The level never exceeds the burst.
//  2. A cost above the level may leave a debt (Take), which new work waits for.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/runtime/runtime.h"

namespace quire {

// Tokens refill evenly; a burst of `burst` is free. The default has no limit.
struct RateLimit {
  double per_second = 0;
  double burst = std::numeric_limits<double>::infinity();
};

class TokenBucket {
 public:
  TokenBucket() = default;
  // Full at the start.
  TokenBucket(const RateLimit& limit, Micros now)
      : limit_(limit), level_(limit.burst), filled_at_(now) {}

  // Keeps the level, up to the new burst; full if there was no limit before.
  void SetLimit(const RateLimit& limit, Micros now) {
    Refill(now);
    limit_ = limit;
    level_ = limited() ? std::min(level_, limit.burst) : limit.burst;
  }
  bool limited() const { return std::isfinite(limit_.burst); }
  double burst() const { return limit_.burst; }

  // The time until `amount` is available; for more than the burst, until the bucket is full. 0:
  // now.
  Micros WaitFor(double amount, Micros now) {
    Refill(now);
    const double missing = std::min(amount, limit_.burst) - level_;
    if (missing <= kRounding) return 0;
    return static_cast<Micros>(std::ceil(missing * kMicrosPerSecond / limit_.per_second));
  }
  // Negative amounts are returned to the bucket.
  void Take(double amount, Micros now) {
    Refill(now);
    level_ = std::min(limit_.burst, level_ - amount);
  }
  // False, and nothing is taken, when less than `amount` is available.
  bool TryTake(double amount, Micros now) {
    Refill(now);
    if (level_ < amount) return false;
    level_ -= amount;
    return true;
  }
  bool Full(Micros now) {
    Refill(now);
    return level_ >= limit_.burst - kRounding;
  }

 private:
  static constexpr double kRounding = 1e-9;  // of a division by three, say

  void Refill(Micros now) {
    const double seconds = static_cast<double>(now - filled_at_) / kMicrosPerSecond;
    level_ = std::min(limit_.burst, level_ + seconds * limit_.per_second);
    filled_at_ = now;
  }

  RateLimit limit_;
  double level_ = std::numeric_limits<double>::infinity();
  Micros filled_at_ = 0;
};

}  // namespace quire
