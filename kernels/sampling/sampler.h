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
  // Changes `logits` ([vocabulary]) in place. NaN or +∞ among them gives not_a_number.
  void Sample(std::span<float> logits, const SampleRow& row, SampleOutput& output);

 private:
  Candidates candidates_;
};

// Keeps the shortest prefix, in the order (order descending, id ascending), whose weights reach
// `target`; all candidates when they don't. A weight is 1 each, or the mass. Exact: a radix search
// for the weight at the cut, ties at the cut by id.
enum class CutBy : uint8_t { kCount, kMass };
void Cut(Candidates& candidates, CutBy by, uint64_t target);

}  // namespace quire::kernels::sampling
