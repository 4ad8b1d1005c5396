// Sampling over slices of the vocabulary, by ranks that talk in rounds, against the CPU's sampler
// that sees the whole row: every field of every output, bit for bit, on every rank.
#include "kernels/cuda/ops/sample/sample_slice.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "kernels/step_program.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/sample_answers.h"

namespace quire::kernels::cuda::test {
namespace {

// The ranks of a group in lockstep, all on one device.
class Ranks {
 public:
  // Cases of one vocabulary.
  Ranks(DeviceBed& bed, const std::vector<Case>& cases, int ranks) : bed_(bed), cases_(cases) {
    std::vector<SampleRow> rows;
    for (const Case& c : cases) rows.push_back(RowOf(c));
    const size_t bytes = PackedSliceRowsBytes(rows);
    std::vector<uint64_t> host((bytes + 7) / 8);
    heard_ = bed.New<std::byte>(cases.size() * kMostSliceMessage * static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      SampleSliceParams& params = of_ranks_.emplace_back();
      params.rank = rank;
      params.ranks = ranks;
      PutLogits(params);
      auto* packed = bed.New<std::byte>(bytes);
      rounds = PackSliceRows(rows, host.data(), packed);
      bed.Check(bed.runtime().Copy(bed.stream(), packed, host.data(), bytes));
      bed.Check(bed.runtime().Synchronize(bed.stream()));
      params.sample_rows = reinterpret_cast<const DeviceSampleRow*>(packed);
      params.states = bed.New<std::byte>(SliceStateBytes(static_cast<int>(cases.size())));
      params.outputs = bed.New<SampleOutput>(cases.size());
      params.said = bed.New<std::byte>(cases.size() * kMostSliceMessage);
      params.heard = heard_;
    }
  }

  // `garble` may change what a rank has said before it is heard.
  using Garble = std::function<void(int round, int rank, std::vector<std::byte>& said)>;
  std::vector<std::vector<SampleOutput>> Sample(const Garble& garble = {}) {
    for (int round = 0; round <= rounds.count; ++round) {
      for (const SampleSliceParams& params : of_ranks_) {
        bed_.Check(LaunchSampleSlice(bed_.runtime(), bed_.stream(), params, rounds, round));
      }
      if (round < rounds.count) Exchange(round, garble);
    }
    std::vector<std::vector<SampleOutput>> outputs;
    for (const SampleSliceParams& params : of_ranks_) {
      outputs.push_back(bed_.Get(params.outputs, cases_.size()));
    }
    return outputs;
  }

  SliceRounds rounds;

 private:
  void PutLogits(SampleSliceParams& params) {
    const auto vocabulary = static_cast<int>(cases_[0].logits.size());
    const VocabularySlice slice = VocabularyOf(vocabulary, params.rank, params.ranks);
    params.first_id = slice.begin;
    params.count = slice.count;
    params.vocabulary = vocabulary;
    params.stride = (slice.width + 7) / 8 * 8;
    // Columns behind the slice are no logits.
    std::vector<float> logits(cases_.size() * static_cast<size_t>(params.stride),
                              std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < cases_.size(); ++i) {
      std::copy_n(cases_[i].logits.begin() + slice.begin, slice.count,
                  &logits[i * static_cast<size_t>(params.stride)]);
    }
    params.logits = bed_.Put(logits);
  }

  void Exchange(int round, const Garble& garble) {
    const size_t bytes = rounds.of[static_cast<size_t>(round)].Bytes();
    std::byte* to = heard_;
    for (const SampleSliceParams& params : of_ranks_) {
      std::vector<std::byte> said = bed_.Get(params.said, bytes);
      if (garble) garble(round, params.rank, said);
      bed_.Check(bed_.runtime().Copy(bed_.stream(), to, said.data(), bytes));
      bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
      to += bytes;
    }
  }

  DeviceBed& bed_;
  const std::vector<Case>& cases_;
  std::vector<SampleSliceParams> of_ranks_;
  std::byte* heard_ = nullptr;
};

void ExpectAsWhole(DeviceBed& bed, const std::vector<Case>& cases, int ranks) {
  Ranks group(bed, cases, ranks);
  const auto got = group.Sample();
  for (size_t i = 0; i < cases.size(); ++i) {
    const SampleOutput expected = OnCpu(cases[i]);
    for (size_t rank = 0; rank < got.size(); ++rank) {
      SCOPED_TRACE(testing::Message() << "row " << i << " on rank " << rank << " of " << ranks);
      ExpectSame(got[rank][i], expected);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// One case of each: greedy, scored, or drawn behind any mix of the cuts; all of these with logprobs
// and without, with lists and without. What else a row has is random.
std::map<size_t, std::vector<Case>> EveryMix() {
  std::mt19937_64 random(21);
  std::map<size_t, std::vector<Case>> by_vocabulary;
  for (int mix = 0; mix < 2 * 2 * (2 + 3 * 2 * 2); ++mix) {
    Case c = sampling::RandomCase(random);
    const auto vocabulary = static_cast<int32_t>(c.logits.size());
    c.row.logprobs = mix % 2 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 21);
    if (mix / 2 % 2 == 0) {
      c.mask.clear();
      c.banned.clear();
      c.bias.clear();
      c.counts.clear();
    } else if (c.bias.empty()) {
      c.bias.push_back({vocabulary / 2, 1.5f});
    }
    const int way = mix / 4;
    if (way == 0) c.row.temperature = 0.0f;
    if (way == 1) c.row.scored_token = static_cast<int32_t>(random() % c.logits.size());
    if (way > 1) {
      const int cuts = way - 2;
      const int top_k[] = {0, 1 + static_cast<int>(random() % kMostSliceTokens),
                           kMostSliceTokens + 1 + static_cast<int>(random() % 100)};
      c.row.temperature = std::max(c.row.temperature, 0.05f);
      c.row.top_k = top_k[cuts % 3];
      c.row.top_p = cuts / 3 % 2 == 0 ? 1.0f : std::min(c.row.top_p, 0.95f);
      c.row.typical_p = cuts / 6 == 0 ? 1.0f : std::min(c.row.typical_p, 0.8f);
    }
    by_vocabulary[c.logits.size()].push_back(c);
  }
  return by_vocabulary;
}

TEST(CudaSampleSlice, IsTheCpusSamplerForEveryMixOfParameters) {
  const auto by_vocabulary = EveryMix();
  ASSERT_EQ(by_vocabulary.size(), 9u);  // the smallest have fewer ids than there are ranks
  uint64_t seed = 0;
  for (const auto& [vocabulary, cases] : by_vocabulary) {
    SCOPED_TRACE(vocabulary);
    const int ranks[] = {3, 4, 2};
    DeviceBed bed(seed);
    ExpectAsWhole(bed, cases, ranks[seed++ % 3]);
  }
}

// Cuts that go by digits, every kind before every other, with ties across the borders of slices.
TEST(CudaSampleSlice, CutsThroughTiesOfSeveralRanks) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 8; ++i) {
    Case c = CaseOf(700, i);
    for (float& z : c.logits) z = std::round(z / 2.0f);
    c.row.logprobs = 21;
    if (i % 2 == 0) c.row.top_k = 150 + 60 * static_cast<int>(i);
    if (i < 6) c.row.top_p = i < 3 ? 0.35f : 0.9f;
    if (i > 2) c.row.typical_p = 0.6f;
    cases.push_back(c);
  }
  cases.push_back(CaseOf(700, 9, 0.0f));  // all are equal
  cases.back().row.top_p = 0.51f;
  cases.push_back(CaseOf(700, 10, 0.0f));
  cases.back().row.top_k = 128;
  DeviceBed bed(7);
  ExpectAsWhole(bed, cases, 4);
}

TEST(CudaSampleSlice, ZerosOfBothSignsAreEqual) {
  DeviceBed bed;
  ExpectAsWhole(bed, ZerosOfBothSigns(), 3);
}

TEST(CudaSampleSlice, ARowThatIsNoNumberFailsAlone) {
  std::vector<Case> cases = RowsThatAreNoNumber();
  for (Case& c : cases) c.row.top_p = 0.9f;
  DeviceBed bed(2);
  ExpectAsWhole(bed, cases, 2);
  ExpectOnlyTheFirstIsWhole(Ranks(bed, cases, 2).Sample()[1]);
}

// Bins that hold whole slices, lists that name tokens of all ranks.
TEST(CudaSampleSlice, WideRowsAreCutExactly) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 3; ++i) {
    Case c = CaseOf(20'003, i, i == 2 ? 0.001f : 3.0f);  // i = 2: all within a bin
    c.row.logprobs = 6;
    if (i == 0) c.row.top_p = 0.9f;
    if (i == 1) c.row.top_k = 50;
    if (i == 2) c.row.top_p = 0.2f;
    for (int id = 5; id < 20'003; id += 901) c.counts.push_back({id, 2});
    c.row.frequency_penalty = 0.25f;
    c.banned = {20'002, 3, 3};
    c.bias.push_back({19'990, 30.0f});
    cases.push_back(c);
  }
  DeviceBed bed(4);
  ExpectAsWhole(bed, cases, 4);
}

TEST(CudaSampleSlice, ARowIsTheSameAloneAndAmongMany) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 12; ++i) {
    cases.push_back(CaseOf(70, i));
    SampleRow& row = cases.back().row;
    if (i % 3 == 0) row.temperature = 0.0f;
    if (i % 4 == 1) row.top_p = 0.8f;
    if (i % 5 == 2) row.top_k = 3;
    row.logprobs = static_cast<int32_t>(i % 4);
  }
  DeviceBed bed(3);
  const auto many = Ranks(bed, cases, 2).Sample()[0];
  for (size_t i = 0; i < cases.size(); ++i) {
    ExpectSame(Ranks(bed, {cases[i]}, 2).Sample()[0][0], many[i]);
  }
}

// What a step costs follows from its rows: how often ranks meet, and with how much.
TEST(CudaSampleSlice, RowsTakeAsManyRoundsAsTheyNeed) {
  const auto rounds_of = [](const std::function<void(Case&)>& change) {
    Case c = CaseOf(8, 1);
    change(c);
    const std::vector<SampleRow> rows = {RowOf(c)};
    std::vector<uint64_t> host(PackedSliceRowsBytes(rows) / 8 + 1);
    return PackSliceRows(rows, host.data(), host.data());
  };
  EXPECT_EQ(rounds_of([](Case& c) { c.row.temperature = 0.0f; }).count, 1);
  const auto biased = [](Case& c) {
    c.row.temperature = 0.0f;
    c.bias.push_back({1, 2.0f});
  };
  EXPECT_EQ(rounds_of(biased).count, 1);
  EXPECT_EQ(rounds_of(biased).of[0].Bytes(), 96u);
  EXPECT_EQ(rounds_of([](Case&) {}).count, 2);
  EXPECT_EQ(rounds_of([](Case& c) { c.row.logprobs = 21; }).of[1].Bytes(), 96u + 160u);
  const SliceRounds top_k = rounds_of([](Case& c) {
    c.row.top_k = 64;
    c.row.top_p = 0.95f;
    c.row.typical_p = 0.9f;
  });
  EXPECT_EQ(top_k.count, 2);
  EXPECT_EQ(top_k.of[1].Bytes(), 96u + 64 * 12);
  const SliceRounds top_p = rounds_of([](Case& c) { c.row.top_p = 0.9f; });
  EXPECT_EQ(top_p.count, 6);
  EXPECT_EQ(top_p.of[4].Bytes(), 96u + 2048);
  const SliceRounds most = rounds_of([](Case& c) {
    c.row.top_k = kMostSliceTokens + 1;
    c.row.top_p = 0.9f;
    c.row.typical_p = 0.9f;
    c.row.logprobs = 21;
    c.bias.push_back({1, 2.0f});
  });
  EXPECT_EQ(most.count, kMostSliceRounds);
  // A row that has come to its end is in no later message.
  Case plain = CaseOf(8, 2);
  Case cut = CaseOf(8, 3);
  cut.row.top_p = 0.5f;
  const std::vector<SampleRow> rows = {RowOf(plain), RowOf(cut), RowOf(plain)};
  std::vector<uint64_t> host(PackedSliceRowsBytes(rows) / 8 + 1);
  const SliceRounds mixed = PackSliceRows(rows, host.data(), host.data());
  EXPECT_EQ(mixed.of[1].rows, 3);
  EXPECT_EQ(mixed.of[2].rows, 1);
}

// Nonsense from one rank about one row: nothing is read or written where it should not be, the row
// has a token that there is or none, the same on all ranks, and the other rows are what they are.
TEST(CudaSampleSlice, WhatIsHeardIsNoIndex) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 6; ++i) {
    cases.push_back(CaseOf(60, 20 + i));
    SampleRow& row = cases.back().row;
    row.logprobs = i < 3 ? 21 : 0;
    if (i % 3 == 0) row.top_p = 0.9f;
    if (i % 3 == 1) row.top_k = 100;
    if (i == 5) row.scored_token = 7;
  }
  const size_t row_at[] = {0, 3, 1, 2, 4, 5};  // by position: those with most rounds first
  for (size_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const size_t position = seed % 6;
    std::mt19937_64 random(seed);
    DeviceBed bed(seed);
    Ranks group(bed, cases, 2);
    const auto got = group.Sample([&](int round, int rank, std::vector<std::byte>& said) {
      const SliceRound& of = group.rounds.of[static_cast<size_t>(round)];
      const auto stride = static_cast<size_t>(of.stride);
      if (rank != 1 || (round == 0 && seed < 6) || (position + 1) * stride > said.size()) return;
      for (size_t i = 0; i < stride; ++i) {
        said[position * stride + i] = static_cast<std::byte>(random());
      }
    });
    for (size_t i = 0; i < cases.size(); ++i) {
      if (i != row_at[position]) {
        ExpectSame(got[0][i], OnCpu(cases[i]));
        continue;
      }
      EXPECT_GE(got[0][i].token, -1);
      EXPECT_LT(got[0][i].token, 60);
      EXPECT_EQ(got[1][i].token, got[0][i].token);
    }
  }
}

TEST(CudaSampleSlice, KeepsItsBudget) {
  std::vector<Case> cases{CaseOf(65'536, 1), CaseOf(65'536, 2)};
  for (Case& c : cases) c.row.temperature = 0.0f;
  DeviceBed bed(5);
  Ranks group(bed, cases, 2);
  bed.runtime().ClearCounters();
  const auto got = group.Sample();
  for (size_t i = 0; i < cases.size(); ++i) ExpectSame(got[0][i], OnCpu(cases[i]));
  // Both ranks: their slices once, and what is kept and said of a row.
  ExpectWithinBudget(bed.runtime(), "sample_slice",
                     2.0 * 2 * (32'768 * 4 + sizeof(SampleOutput) + sizeof(DeviceSampleRow)), 0);
}

TEST(CudaSampleSlice, ShapesThatItCannotTakeAreRefused) {
  DeviceBed bed;
  SliceRounds rounds;
  rounds.count = 1;
  SampleSliceParams good;
  good.count = 8;
  good.vocabulary = 8;
  good.stride = 8;
  for (int bad = 0; bad < 7; ++bad) {
    SampleSliceParams params = good;
    if (bad == 0) params.stride = 6;
    if (bad == 1) params.count = 9;
    if (bad == 2) params.first_id = 1;
    if (bad == 3) params.rank = 1;
    if (bad == 4) params.ranks = 65;
    if (bad == 5) params.count = -1;
    if (bad == 6) params.vocabulary = 1 << 24;
    EXPECT_NE(LaunchSampleSlice(bed.runtime(), bed.stream(), params, rounds, 0), "") << bad;
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
