// Cases of sampling, and what the CPU's sampler answers to them.
//
// Values of one test.
#pragma once

#include <gtest/gtest.h>

#include <bit>
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

}  // namespace quire::kernels::cuda::test
