// Applies bans, biases and penalties to a row's logits, and keeps the raw logits that they change.
//
// A RowChanges belongs to one thread's sampler. A row may be a slice of the vocabulary: `first` is
// the id of its first logit, and entries of other ids are skipped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/sample_row.h"

namespace quire::kernels::sampling {

bool HasPenalties(const SampleRow& row);
// Whether the row's parameters may change any logit.
bool ChangesLogits(const SampleRow& row);
// Whether all that it does to them is to forbid those outside its mask.
bool OnlyMasks(const SampleRow& row);
// In the order of work: allowed ids, bans, biases, penalties.
void ChangeLogits(std::span<float> z, int32_t first, const SampleRow& row);

class RowChanges {
 public:
  void Reserve(int64_t tokens);
  static int64_t ReservedBytes(int64_t tokens);

  // Call before ChangeLogits: keeps the raw logits of tokens that it may change and leave possible.
  void KeepRaw(std::span<const float> z, int32_t first, const SampleRow& row);
  // Afterwards: the raw logit of a token of the row that is still possible.
  float RawOf(std::span<const float> z, int32_t first, const SampleRow& row, int32_t id) const;

 private:
  std::vector<float> raw_biased_;  // by entry of the row's list
  std::vector<float> raw_counted_;
};

}  // namespace quire::kernels::sampling
