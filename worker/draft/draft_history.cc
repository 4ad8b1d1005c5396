#include "worker/draft/draft_history.h"

#include <algorithm>

#include "common/check.h"

namespace quire {

void DraftHistory::Add(int64_t drafted, int64_t accepted, int64_t length) {
  QUIRE_CHECK(drafted > 0 && accepted >= 0 && accepted <= drafted);
  // Those after the first wrong one say nothing.
  right_ = kFade * right_ + static_cast<double>(accepted);
  tried_ = kFade * tried_ + static_cast<double>(accepted) + (accepted < drafted ? 1 : 0);
  last_length_ = length;
}

double DraftStart::Chance() const { return std::max(kLeast, right_ / tried_); }

void DraftStart::Add(int64_t drafted, int64_t accepted) {
  QUIRE_CHECK(drafted > 0 && accepted >= 0 && accepted <= drafted);
  right_ = kFade * right_ + static_cast<double>(accepted);
  tried_ = kFade * tried_ + static_cast<double>(accepted) + (accepted < drafted ? 1 : 0);
}

int32_t WorthDrafting(double chance, double micros, int32_t most, DraftStep& step) {
  QUIRE_CHECK(most >= 0 && micros >= 0);
  double gain = 1;
  for (int32_t count = 0; count < most; ++count) {
    gain *= chance;
    if (gain * step.micros <= micros * step.tokens) return count;
    step.micros += micros;
    step.tokens += gain;
  }
  return most;
}

}  // namespace quire
