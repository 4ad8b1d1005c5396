// How long a step will take, learned from earlier steps: the limit beyond which a step is stuck
// (StepProgress).
//
// Owner: Engine. Pure: durations come in as data. A prediction is rather too long, since it only
// has to separate a slow step from one that never ends.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

class StepCost {
 public:
  // Microseconds for a step of `tokens` tokens. Requires: tokens > 0.
  int64_t PredictMicros(int64_t tokens) const;
  void Observe(int64_t tokens, int64_t elapsed_us);

 private:
  // Before anything is known: slow enough for a large model on few cores.
  static constexpr int64_t kUnknownMicrosPerToken = 20'000;
  static constexpr int kBuckets = 32;  // by the binary logarithm of the token count

  std::array<int64_t, kBuckets> micros_{};  // smoothed; 0: not seen yet
};

}  // namespace quire
