// Cases of sampling, and what the CPU's sampler answers to them.
//
// Values of one test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sampling/sampler.h"
#include "tests/kernels/sample_case.h"

namespace quire::kernels::cuda::test {

using sampling::Case;

inline SampleOutput OnCpu(const Case& c) {
  sampling::Sampler sampler;
  sampler.Reserve(static_cast<int64_t>(c.logits.size()));
  std::vector<float> logits = c.logits;
  SampleOutput output;
  sampler.Sample(logits, RowOf(c), output);
  return output;
}

inline void ExpectSame(const SampleOutput& got, const SampleOutput& expected) {
  EXPECT_EQ(got.token, expected.token);
  EXPECT_EQ(got.not_a_number, expected.not_a_number);
  EXPECT_EQ(std::bit_cast<uint32_t>(got.logprob), std::bit_cast<uint32_t>(expected.logprob))
      << got.logprob << " " << expected.logprob;
  EXPECT_EQ(got.rank, expected.rank);
  ASSERT_EQ(got.top_count, expected.top_count);
  for (int i = 0; i < kMaxTopLogprobs; ++i) {
    EXPECT_EQ(got.top_ids[i], expected.top_ids[i]) << i;
    EXPECT_EQ(std::bit_cast<uint32_t>(got.top_logprobs[i]),
              std::bit_cast<uint32_t>(expected.top_logprobs[i]))
        << i;
  }
}

// A case of so many ids and nothing but a temperature.
inline Case CaseOf(int vocabulary, uint64_t seed, float size = 4.0f) {
  Case c;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  for (int i = 0; i < vocabulary; ++i) c.logits.push_back(normal(random));
  c.row.seed = seed;
  return c;
}

// Greedy, drawn in two ways, and scored, where all are equal.
inline std::vector<Case> ZerosOfBothSigns() {
  Case c = CaseOf(40, 1);
  for (size_t i = 0; i < c.logits.size(); ++i) c.logits[i] = i % 3 == 0 ? -0.0f : 0.0f;
  c.row.logprobs = 21;
  std::vector<Case> cases(4, c);
  cases[0].row.temperature = 0.0f;
  cases[1].row.top_k = 5;
  cases[2].row.top_p = 0.3f;
  cases[3].row.scored_token = 21;
  return cases;
}

// The first one is whole. 4 and 5 have nothing that may be chosen; the others fail.
inline std::vector<Case> RowsThatAreNoNumber() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<Case> cases(9, CaseOf(300, 5));
  for (Case& c : cases) c.row.logprobs = 3;
  cases[1].logits[299] = std::numeric_limits<float>::quiet_NaN();
  cases[2].logits[0] = -std::numeric_limits<float>::quiet_NaN();
  cases[3].logits[170] = infinity;
  std::fill(cases[4].logits.begin(), cases[4].logits.end(), -infinity);
  cases[5].mask.assign(10, 0);  // nothing is allowed
  cases[6].bias.push_back({9, infinity});
  cases[7] = cases[6];
  cases[7].row.logprobs = 0;
  cases[8] = cases[1];
  cases[8].mask.assign(10, 1);  // the one that is no number is not allowed
  cases[8].row.logprobs = 0;
  return cases;
}
inline void ExpectOnlyTheFirstIsWhole(const std::vector<SampleOutput>& got) {
  const bool failed[] = {false, true, true, true, false, false, true, true, true};
  ASSERT_EQ(got.size(), std::size(failed));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].not_a_number, failed[i]) << i;
    EXPECT_EQ(got[i].token >= 0, i == 0) << i;
  }
}

}  // namespace quire::kernels::cuda::test
