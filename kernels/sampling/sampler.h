// Sampling on the host: one row of logits to one token, by the rules at the head of sample_row.h.
//
// A Sampler belongs to one thread at a time; rows do not see each other.
// Invariants:
// 1. Every choice is a function of (logits, row) alone: masses are integers, noise depends on the
// token id.
// 2. Where two tokens are equal the lower id comes first, in the choice and at every cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {

// Tokens still in play, in ascending order of id. `distance` is (z − max) / temperature ≤ 0.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<float> distance;
  std::vector<uint32_t> order;  // of the cut in hand: higher comes first
  std::vector<uint64_t> mass;
};

class Sampler {
 public:
  // Takes all the memory that rows of so many tokens can need: none is allocated afterwards.
  void Reserve(int64_t vocab_size);
  static int64_t ReservedBytes(int64_t vocab_size);

  // Leaves in `logits` ([vocabulary]) what biases, bans and penalties made of them. NaN or +∞ among
  // them gives not_a_number. A row with a scored token (which lies in the vocabulary) is only
  // measured.
  void Sample(std::span<float> logits, const SampleRow& row, SampleOutput& output);

  // The tokens among which the last row was drawn, when its parameters cut any away. For tests.
  const Candidates& candidates() const { return candidates_; }

 private:
  void KeepRaw(std::span<const float> z, const SampleRow& row);
  float RawOf(std::span<const float> z, const SampleRow& row, int32_t id) const;
  static bool ChangeLogits(std::span<float> z, const SampleRow& row);
  void Gather(std::span<const float> z, const Peak& peak, float least, float temperature);
  template <class Keep>
  void KeepIf(const Keep& keep);
  void CutRowToTopP(std::span<const float> z, const Peak& peak, const SampleRow& row);
  void CutRowToTypical(std::span<const float> z, const Peak& peak, const SampleRow& row);
  void Filter(std::span<const float> z, const Peak& peak, const SampleRow& row);
  int32_t Draw(std::span<const float> z, const Peak& peak, const SampleRow& row);

  RowPeaks peaks_;
  Candidates candidates_;
  std::vector<float> raw_biased_;  // by entry of the row's list
  std::vector<float> raw_counted_;
};

// Keeps the shortest prefix, in the order (order descending, id ascending), whose weights reach
// `target`; all candidates when they don't. A weight is 1 each, or the mass. Exact: a radix search
// for the weight at the cut, ties at the cut by id.
enum class CutBy : uint8_t { kCount, kMass };
void Cut(Candidates& candidates, CutBy by, uint64_t target);

}  // namespace quire::kernels::sampling
