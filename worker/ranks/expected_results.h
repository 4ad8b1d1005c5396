// What the packets in flight request, so that a result that does not answer them counts as a fault
// of the rank and not as a bug of the engine.
//
// Owner: RankGroup; called on the engine's thread. Uses no more memory than the largest steps need.
// Invariant: steps are answered in the order in which they were launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/step_plan.h"
#include "worker/runner/step_packet.h"

namespace quire {

class ExpectedResults {
 public:
  ExpectedResults(const StepLimits& limits, int max_in_flight);

  // Another generation: nothing is in flight and no row is alive.
  void Clear();
  // The engine's own packet, in order of launch.
  void Launch(std::span<const std::byte> packet);
  // The sequence of each sample of the newest step that has a mask, in the order of its rows.
  std::span<const uint64_t> constrained() const { return constrained_; }
  // Whether `result` answers the oldest step in flight, row by row and position by position.
  bool Fits(const StepResult& result) const;
  // The oldest step has been answered.
  void Pop();

 private:
  struct Sample {
    int32_t row = 0;
    uint64_t sequence = 0;
  };
  struct Step {
    uint64_t number = 0;
    std::vector<Sample> samples;
    std::vector<int32_t> scored;  // positions of the tokens
  };

  const StepLimits limits_;
  StepPlan plan_;                          // reused
  std::vector<uint64_t> sequence_of_row_;  // by row, of those alive
  std::vector<bool> constrained_row_;      // the same
  std::vector<uint64_t> constrained_;
  std::vector<Step> steps_;  // a ring
  size_t first_ = 0;         // the oldest in flight
  size_t count_ = 0;
};

}  // namespace quire
