// Sampling over slices of the vocabulary, held by ranks that talk in rounds, against the sampler
// that sees the whole row: bit for bit, with every mix of parameters and any cut.
#include "kernels/sampling/slice_sampler.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/sampling/sampler.h"
#include "kernels/step_program.h"
#include "tests/kernels/sample_case.h"

namespace quire::kernels::sampling {
namespace {

// Ranks in lockstep on one thread.
class Ranks {
 public:
  explicit Ranks(int ranks) : samplers_(static_cast<size_t>(ranks)) {}

  // What every rank came to; they must agree, and so must the sizes of their messages.
  SampleOutput Sample(const std::vector<float>& logits, const SampleRow& row) {
    const int ranks = static_cast<int>(samplers_.size());
    std::vector<std::vector<float>> slices;
    std::vector<SampleOutput> outputs(samplers_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const VocabularySlice slice = VocabularyOf(static_cast<int>(logits.size()), rank, ranks);
      slices.emplace_back(logits.begin() + slice.begin, logits.begin() + slice.begin + slice.count);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<size_t>(rank);
      const int32_t first = VocabularyOf(static_cast<int>(logits.size()), rank, ranks).begin;
      samplers_[at].Begin(slices[at], {rank, ranks, first, static_cast<int32_t>(logits.size())},
                          row, outputs[at]);
    }
    rounds = 0;
    while (!samplers_[0].done()) Round();
    for (size_t rank = 0; rank < samplers_.size(); ++rank) {
      EXPECT_TRUE(samplers_[rank].done());
      ExpectSame(outputs[rank], outputs[0]);
    }
    return outputs[0];
  }

  static void ExpectSame(const SampleOutput& a, const SampleOutput& b) {
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.not_a_number, b.not_a_number);
    EXPECT_EQ(std::bit_cast<uint32_t>(a.logprob), std::bit_cast<uint32_t>(b.logprob));
    EXPECT_EQ(a.rank, b.rank);
    ASSERT_EQ(a.top_count, b.top_count);
    for (int i = 0; i < a.top_count; ++i) {
      EXPECT_EQ(a.top_ids[i], b.top_ids[i]) << i;
      EXPECT_EQ(std::bit_cast<uint32_t>(a.top_logprobs[i]),
                std::bit_cast<uint32_t>(b.top_logprobs[i]))
          << i;
    }
  }

  int rounds = 0;

 private:
  void Round() {
    const size_t bytes = samplers_[0].MessageBytes();
    ASSERT_GT(bytes, 0u);
    ASSERT_EQ(bytes % 8, 0u);
    ASSERT_LE(bytes, SliceSampler::kMostMessageBytes);
    std::vector<uint64_t> said(samplers_.size() * bytes / 8);
    const auto memory = std::as_writable_bytes(std::span(said));
    for (size_t rank = 0; rank < samplers_.size(); ++rank) {
      ASSERT_EQ(samplers_[rank].MessageBytes(), bytes);
      samplers_[rank].Say(memory.subspan(rank * bytes, bytes));
    }
    for (SliceSampler& sampler : samplers_) sampler.Hear({memory.data(), bytes});
    ASSERT_LT(++rounds, 40);
  }

  std::vector<SliceSampler> samplers_;
};

void ExpectAsWhole(Ranks& ranks, const std::vector<float>& logits, const SampleRow& row) {
  Sampler sampler;
  std::vector<float> whole = logits;
  SampleOutput wanted;
  sampler.Sample(whole, row, wanted);
  Ranks::ExpectSame(ranks.Sample(logits, row), wanted);
}

TEST(SliceSampler, RandomMixesOfAllParameters) {
  std::mt19937_64 random(31);
  for (const int count : {1, 2, 3, 4, 7}) {
    Ranks ranks(count);
    for (int round = 0; round < 800; ++round) {
      SCOPED_TRACE(testing::Message() << count << " ranks, round " << round);
      const Case c = RandomCase(random);
      ExpectAsWhole(ranks, c.logits, RowOf(c));
      if (HasFailure()) return;
    }
  }
}

// Only the cuts by mass: deep ones too, which look at the whole row.
TEST(SliceSampler, CutsByMassAlone) {
  std::mt19937_64 random(32);
  Ranks ranks(4);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Case c = RandomCase(random);
    c.row.top_k = 0;
    c.row.min_p = 0.0f;
    c.row.temperature = round % 3 == 0 ? 3.0f : 0.7f;
    c.row.top_p = round % 2 == 0 ? 0.9999f : 1.0f;
    c.row.typical_p = round % 2 == 1 ? 0.999f : 1.0f;
    ExpectAsWhole(ranks, c.logits, RowOf(c));
    if (HasFailure()) return;
  }
}

// Equal logits on all ranks: every cut goes through a tie, and the lowest ids stay.
TEST(SliceSampler, TiesAcrossRanks) {
  Ranks ranks(4);
  const std::vector<float> logits(100, 1.5f);
  for (int k = 1; k < 100; k += 7) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SampleRow row;
      row.top_k = k;
      row.seed = seed;
      row.logprobs = 6;
      ExpectAsWhole(ranks, logits, row);
      EXPECT_LT(ranks.Sample(logits, row).token, k);
      row.top_k = 0;
      row.top_p = static_cast<float>(k) / 100.0f;
      ExpectAsWhole(ranks, logits, row);
      row.typical_p = 0.5f;
      ExpectAsWhole(ranks, logits, row);
      row.temperature = 0.0f;
      EXPECT_EQ(ranks.Sample(logits, row).token, 0);
    }
  }
}

TEST(SliceSampler, ScoresTokensOfThePrompt) {
  std::mt19937 random(33);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(203);
  for (float& z : logits) z = std::round(normal(random) * 4.0f) / 4.0f;
  Ranks ranks(3);
  for (int32_t token = 0; token < 203; ++token) {
    SampleRow row;
    row.scored_token = token;
    row.logprobs = 1 + token % 5;
    ExpectAsWhole(ranks, logits, row);
  }
}

TEST(SliceSampler, WhatIsNotANumberOnOneRankEndsTheRowOnAll) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0u, 49u, 50u, 99u}) {
      std::vector<float> logits(100, 0.25f);
      logits[at] = bad;
      Ranks ranks(2);
      SampleRow row;
      row.logprobs = 3;
      row.top_k = 5;
      ExpectAsWhole(ranks, logits, row);
      EXPECT_TRUE(ranks.Sample(logits, row).not_a_number);
    }
  }
}

TEST(SliceSampler, NothingAllowedGivesNoToken) {
  const std::vector<float> logits(40, 1.0f);
  const std::vector<uint32_t> mask = {0, 0};
  SampleRow row;
  row.allowed_mask = mask;
  row.logprobs = 2;
  Ranks ranks(4);
  ExpectAsWhole(ranks, logits, row);
  EXPECT_EQ(ranks.Sample(logits, row).token, -1);
}

// What a dying rank may leave behind where the others listen.
TEST(SliceSampler, NonsenseSpoilsTheRowAlone) {
  std::mt19937_64 random(35);
  SliceSampler sampler;
  sampler.Reserve(50, 100);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(50);
    for (float& z : logits) z = static_cast<float>(random() % 100) * 0.1f;
    Case c = RandomCase(random);
    c.row.scored_token = round % 7 == 0 ? static_cast<int32_t>(random() % 100) : -1;
    SampleOutput output;
    sampler.Begin(logits, {0, 2, 0, 100}, c.row, output);
    while (!sampler.done()) {
      const size_t bytes = sampler.MessageBytes();
      std::vector<uint64_t> said(2 * bytes / 8);
      for (uint64_t& word : said)
        word = random() % 3 == 0 ? random() : ~uint64_t{0} >> random() % 64;
      const auto memory = std::as_writable_bytes(std::span(said));
      sampler.Say(memory.first(bytes));
      sampler.Hear({memory.data(), bytes});
    }
    EXPECT_LT(output.token, 100);
    EXPECT_GE(output.token, -1);
  }
}

// The usual requests are decided in few rounds.
TEST(SliceSampler, RoundsAreFew) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 97) * 0.1f;
  Ranks ranks(2);
  SampleRow row;
  row.temperature = 0.0f;
  ranks.Sample(logits, row);
  EXPECT_EQ(ranks.rounds, 1);
  row.temperature = 1.0f;
  ranks.Sample(logits, row);
  EXPECT_EQ(ranks.rounds, 2);
  row.top_k = 50;
  ranks.Sample(logits, row);
  EXPECT_EQ(ranks.rounds, 6);
  row.top_p = 0.9f;
  row.typical_p = 0.9f;
  row.logprobs = 21;
  ranks.Sample(logits, row);
  EXPECT_LE(ranks.rounds, 16);
}

}  // namespace
}  // namespace quire::kernels::sampling
