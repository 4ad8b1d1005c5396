// Where a runner gets the masks of constrained rows: others compute them while the step computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// The most drafts that the constrained rows of one step have together: each has a mask.
inline constexpr size_t kMaxMaskedDrafts = 256;

class StepMasks {
 public:
  virtual ~StepMasks() = default;

  // Which tokens may be the next output of a constrained sequence, behind the first `drafts` of the
  // drafts that the step has for it: bit id % 32 of word id / 32. Waits for it; valid until the
  // step has ended. Empty: the sequence has ended, or the step fails; what is sampled is of no use.
  virtual std::span<const uint32_t> MaskOf(uint64_t sequence, size_t drafts) = 0;
};

}  // namespace quire
