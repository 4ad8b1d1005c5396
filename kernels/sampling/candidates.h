// The tokens of a row that are still in play, and the exact cuts among them.
//
// Pure functions over one row's values; one thread at a time may call them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {

// In ascending order of id. `distance` is (z − max) / temperature ≤ 0.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<float> distance;
  std::vector<uint32_t> order;  // of the current cut: higher comes first
  std::vector<uint64_t> mass;

  void Reserve(int64_t tokens);
  static int64_t ReservedBytes(int64_t tokens);

  // Drops the candidates for which `keep` of their index is false.
  template <class Keep>
  void KeepIf(const Keep& keep) {
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!keep(i)) continue;
      ids[kept] = ids[i];
      distance[kept++] = distance[i];
    }
    ids.resize(kept);
    distance.resize(kept);
  }
};

// Below these distances from the peak there is less and less of the mass: a cut by mass searches
// down to each of them before it searches the whole row.
inline constexpr float kDepths[] = {-6.0f, -12.0f};
// The same for a cut by typicality, on both sides of the mean.
inline constexpr float kWidths[] = {2.0f, 6.0f};

// A logit that no token has whose distance is `distance` or more: a little lower than the exact
// one, so that rounding leaves none out.
float LogitAtDepth(float peak, float distance, float temperature);
// The same for a token of at least `min_p` times the peak's probability.
float LogitAtShare(float peak, float min_p, float temperature);

// All tokens with a logit of at least `least` whose distance is not −∞.
void GatherCandidates(std::span<const float> z, float peak, float least, float temperature,
                      Candidates& candidates);

// Fills in the masses; their sum.
uint64_t WeighAll(Candidates& candidates);
// Σ Mass(−distance · e^distance).
uint64_t WeightedMass(const Candidates& candidates);
// The mean distance that the two sums make.
float MeanDistance(uint64_t weighted, uint64_t total);

void OrderByDistance(Candidates& candidates);
// Orders by the distance of a token's surprise from the entropy, nearest first. With p = e^d / Σ
// e^d the difference of −ln p and the entropy is |d − Σ d e^d / Σ e^d|: the logarithm of the sum
// cancels.
void OrderByTypicality(Candidates& candidates, float mean);

// Keeps the shortest prefix, in the order (order descending, id ascending), whose weights reach
// `target`; all candidates when they don't. A weight is 1 each, or the mass. Exact: a radix search
// for the weight at the cut, ties at the cut by id.
enum class CutBy : uint8_t { kCount, kMass };
void Cut(Candidates& candidates, CutBy by, uint64_t target);
// The last step of it: candidates above `threshold` stay; of those at it, as many of the lowest ids
// as the target needs, where `above` is the weight of those before them.
struct CutPlace {
  uint32_t threshold = 0;
  uint64_t above = 0;
  uint64_t target = 0;
};
void CutAt(Candidates& candidates, CutBy by, const CutPlace& place);
uint64_t WeightOf(const Candidates& candidates, CutBy by, size_t i);

// One of the best raw logits of a row.
struct TopLogit {
  float value = 0.0f;
  int32_t id = -1;
};

// The best `count` ≤ kMaxTopLogprobs of them, or as many as there are, ties to the lowest id;
// returns how many. `peaks` have searched the row.
int FindTop(std::span<const float> z, RowPeaks& peaks, int count, Candidates& scratch,
            TopLogit* top);
// Inserts `next`, whose id is higher than those of its equals, into the `held` best of at most
// `count`; returns how many are held now.
int InsertTop(TopLogit* top, int held, int count, TopLogit next);

}  // namespace quire::kernels::sampling
