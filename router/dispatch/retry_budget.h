// How many placement retries a router may make: a share of the requests that came in, so that
// retries do not multiply the load on a fleet that refuses.
//
// Owner: the dispatcher. Pure values: a token bucket that fills by requests, not by time (the
// "retry budget" of Finagle).
//  1. Retries taken ≤ burst + share × requests started.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/check.h"

namespace quire {

class RetryBudget {
 public:
  // `percent` of the requests; starts full, and never holds more than `burst` retries.
  RetryBudget(uint32_t percent, uint32_t burst)
      : percent_(percent), full_(uint64_t{burst} * kWhole), level_(full_) {
    QUIRE_CHECK(percent <= kWhole);
  }

  void RequestStarted() { level_ = std::min(full_, level_ + percent_); }
  // False: the budget is used up.
  bool TryTake() {
    if (level_ < kWhole) return false;
    level_ -= kWhole;
    return true;
  }
  // The retry was not made after all.
  void GiveBack() { level_ = std::min(full_, level_ + kWhole); }
  uint32_t available() const { return static_cast<uint32_t>(level_ / kWhole); }

 private:
  static constexpr uint64_t kWhole = 100;  // one retry, in hundredths
  uint64_t percent_;
  uint64_t full_;
  uint64_t level_;
};

}  // namespace quire
