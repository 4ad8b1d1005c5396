// Sampling on the host: one row of logits to one token, by the rules at the head of sample_row.h.
//
// A Sampler belongs to one thread at a time; rows do not see each other.
// Invariants:
// 1. Every choice is a function of (logits, row) alone: masses are integers, noise depends on the
// token id.
// 2. Of two equal tokens the lower id comes first, in the choice and at every cut.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sampling/candidates.h"
#include "kernels/sampling/row_changes.h"
#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {

class Sampler {
 public:
  // Allocates all the memory that rows of this many tokens can need: none is allocated afterwards.
  void Reserve(int64_t vocab_size);
  static int64_t ReservedBytes(int64_t vocab_size);

  // May leave in `logits` ([vocabulary]) the values after masks, biases, bans and penalties. NaN or
  // +∞ among them sets not_a_number. A row with a scored token (which is in the vocabulary) is only
  // measured.
  void Sample(std::span<float> logits, const SampleRow& row, SampleOutput& output);

  // The tokens among which the last row was drawn, when its parameters cut any away. For tests.
  const Candidates& candidates() const { return candidates_; }

 private:
  void Gather(std::span<const float> z, const Peak& peak, float least, float temperature);
  void CutRowToTopP(std::span<const float> z, const Peak& peak, const SampleRow& row);
  void CutRowToTypical(std::span<const float> z, const Peak& peak, const SampleRow& row);
  void Filter(std::span<const float> z, const Peak& peak, const SampleRow& row);
  int32_t Draw(std::span<float> z, const Peak& peak, const SampleRow& row);

  RowPeaks peaks_;
  Candidates candidates_;
  RowChanges changes_;
};

}  // namespace quire::kernels::sampling
