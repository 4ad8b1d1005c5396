// Where a runner gets the masks of constrained rows: others compute them while the step computes.
#pragma once

#include <cstdint>
#include <span>

namespace quire {

class StepMasks {
 public:
  virtual ~StepMasks() = default;

  // Which tokens may be the next output of a constrained sequence: bit id % 32 of word id / 32.
  // Waits for it; valid until the step has ended. Empty: the sequence has ended, or the step fails;
  // what is sampled is of no use.
  virtual std::span<const uint32_t> MaskOf(uint64_t sequence) = 0;
};

}  // namespace quire
