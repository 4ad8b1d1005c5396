// Passes over a whole row of logits: its peak, its mass, its best tokens, and the draw among all of
// them. Each returns the same bits as the plain loop over arithmetic.h, many tokens at a time.
//
// Pure except for RowPeaks, which belongs to one thread's sampler.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::sampling {

inline constexpr float kImpossible = -std::numeric_limits<float>::infinity();

struct Peak {
  bool usable = false;  // neither NaN nor +∞ anywhere
  float value = kImpossible;
  int32_t id = -1;  // the lowest id that has it; −1 when all are −∞
};

// (z − peak) / temperature: how far a token is below the best one.
inline float DistanceOf(float z, float peak, float temperature) { return (z - peak) / temperature; }

// The largest logits of pieces of a row, a by-product of the search for its peak: a cut to k tokens
// needs to read only what is above the k-th largest of them.
class RowPeaks {
 public:
  void Reserve(int64_t vocab_size);
  static int64_t ReservedBytes(int64_t vocab_size);

  // Reads the row once.
  Peak Find(std::span<const float> z);
  // As if the logits of all ids that are not in the mask (one bit per id) were −∞. Reads little of
  // a row if the mask holds few ids. Requires: neither NaN nor +∞ is in the row.
  Peak FindAllowed(std::span<const float> z, std::span<const uint32_t> mask);

  // At least `count` logits of the row last searched, by either, are this large or larger; −∞ when
  // it has too few pieces to know.
  float LowerBound(int64_t count);

 private:
  std::vector<float> lanes_;  // [pieces of 256 logits][8 lanes]
  std::vector<float> scratch_;
};

// Σ Mass(e^distance).
uint64_t SumMasses(std::span<const float> z, float peak, float temperature);

// Σ Mass(−distance · e^distance) of the tokens that are not −∞.
uint64_t SumWeightedMasses(std::span<const float> z, float peak, float temperature);

// Appends ids and logits of all tokens with a logit of at least `least` that is not −∞, in order of
// id.
void GatherAtLeast(std::span<const float> z, float least, std::vector<int32_t>& ids,
                   std::vector<float>& values);

// How many tokens come before one of logit `own` at `place`: those of a larger logit, and equal
// ones of a lower id. The place may be before or after the row.
int32_t CountBefore(std::span<const float> z, float own, int64_t place);

// Sets the logits of all tokens that are not in the mask (one bit per id) to −∞. z[0] is the logit
// of the id `first`.
void ForbidOutsideMask(std::span<float> z, int32_t first, std::span<const uint32_t> mask);

struct Best {
  double score = -std::numeric_limits<double>::infinity();
  int32_t id = -1;
};

// Draws the token's noise, unless it is out of reach, and keeps the better token; equal ones go to
// the lower id.
inline void Consider(const NoisePosition& at, float distance, int32_t id, Best& best) {
  if (static_cast<double>(distance) + kLargestGumbel < best.score) return;
  const double score = static_cast<double>(distance) + Gumbel(at, static_cast<uint32_t>(id));
  if (score > best.score || (score == best.score && id < best.id)) best = Best{score, id};
}

// The best of all tokens that are not −∞, and of the peak. z[0] is the logit of the id `first`; the
// peak's id is one of the vocabulary and may be outside the row.
Best DrawAmongAll(std::span<const float> z, int32_t first, const Peak& peak, float temperature,
                  const NoisePosition& at);
// The same of those in the mask (one bit per id); z is the whole row.
Best DrawAmongAllowed(std::span<const float> z, std::span<const uint32_t> mask, const Peak& peak,
                      float temperature, const NoisePosition& at);

}  // namespace quire::kernels::sampling
