// Steps of a model with mixtures of experts and sinks: the same bits with and without graphs, with
// one and two steps in flight, in changing company and in slices; nothing new once loaded.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/backend/moe_places.h"
#include "tests/kernels/cuda/backend/step_bed.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kExperts = 5;

BedOptions WithExperts() {
  BedOptions options;
  options.experts = kExperts;
  return options;
}

std::vector<Answer> Alone(const std::vector<Sequence>& sequences, size_t tokens,
                          BedOptions options) {
  options.start.graphs = false;
  StepBed bed(options);
  return bed.Serve(sequences, tokens, {.alone = true});
}

TEST(CudaMoeStepsTest, GraphsStepsInFlightAndCompanyChangeNoBit) {
  const std::vector<Sequence> sequences = RandomSequences(7, 20, 11);
  constexpr size_t kTokens = 8;
  const std::vector<Answer> alone = Alone(sequences, kTokens, WithExperts());
  for (const bool graphs : {false, true}) {
    BedOptions options = WithExperts();
    options.start.graphs = graphs;
    StepBed bed(options);
    ASSERT_EQ(bed.program().Failure(), "");
    for (const int in_flight : {1, 2}) {
      SCOPED_TRACE(testing::Message() << graphs << in_flight);
      ASSERT_EQ(bed.Serve(sequences, kTokens, {in_flight, 6, 1}), alone);
      ASSERT_EQ(bed.program().Failure(), "");
    }
  }
}

// Tiles of 8, 32 and 128 rows, in buckets with padding.
TEST(CudaMoeStepsTest, EveryWidthOfTilesHasTheSameBits) {
  BedOptions options = WithExperts();
  options.max_rows = 40;
  options.max_tokens = 400;
  options.max_positions = 32;
  const std::vector<Sequence> sequences = RandomSequences(40, 9, 12);
  const std::vector<Answer> alone = Alone(sequences, 3, options);
  StepBed bed(options);
  for (const size_t rows : {3, 17, 40}) {
    const std::vector<Sequence> some(sequences.begin(),
                                     sequences.begin() + static_cast<ptrdiff_t>(rows));
    const auto answers = bed.Serve(some, 3, {2, 10, rows});
    ASSERT_TRUE(std::equal(answers.begin(), answers.end(), alone.begin())) << rows;
  }
  std::set<std::string> widths;
  for (const auto& [name, counters] : bed.runtime().counters()) {
    if (name.rfind("experts_", 0) == 0) widths.insert(name);
  }
  EXPECT_EQ(widths, (std::set<std::string>{"experts_8", "experts_32", "experts_128"}));
}

// More tokens than a mixture takes at a time.
TEST(CudaMoeStepsTest, LongStepsAreCutIntoSlices) {
  BedOptions options = WithExperts();
  options.max_rows = 4;
  options.max_positions = 560;
  options.max_tokens = 4 * options.max_positions;
  options.pages = 4 * 2 * options.max_positions;
  std::vector<Sequence> sequences = RandomSequences(4, 4, 13);
  for (Sequence& sequence : sequences) {
    while (static_cast<int>(sequence.prompt.size()) < options.max_positions - 8) {
      sequence.prompt.push_back(static_cast<int32_t>(sequence.prompt.size() * 7 % 97));
    }
  }
  ASSERT_GT(4 * sequences[0].prompt.size(), static_cast<size_t>(kMoeTokens));
  const std::vector<Answer> alone = Alone(sequences, 2, options);
  StepBed bed(options);
  EXPECT_EQ(bed.Serve(sequences, 2, {1, 10, 1}), alone);
}

TEST(CudaMoeStepsTest, OnceLoadedNothingIsNew) {
  BedOptions options = WithExperts();
  options.start.warm_up = true;
  options.max_tokens = 400;
  StepBed bed(options);
  ASSERT_EQ(bed.program().Failure(), "");
  const auto names = [&bed] {
    std::set<std::string> all;
    for (const auto& [name, counters] : bed.runtime().counters()) all.insert(name);
    return all;
  };
  const std::set<std::string> loaded = names();
  const uint64_t calls = bed.runtime().memory_calls();
  for (const size_t length : {3, 40, 80}) {
    bed.Serve(std::vector<Sequence>(5, {std::vector<int32_t>(length, 5), 0.0f, 1}), 3, {});
  }
  ASSERT_EQ(bed.program().Failure(), "");
  EXPECT_EQ(names(), loaded);
  EXPECT_EQ(bed.runtime().memory_calls(), calls) << "a step took or gave back memory";
}

// Loading takes what was planned, matrices of experts and routing included.
TEST(CudaMoeStepsTest, MemoryIsWhatWasPlanned) {
  StepBed bed(WithExperts());
  StepBed plain(BedOptions{});
  const auto backend = MakeCudaBackend(
      std::make_unique<emulate::EmulatedRuntime>(1, emulate::Checks::kNone), {"emulated", "", {}});
  EXPECT_EQ(bed.program().WeightBytes(), backend->EstimateWeightBytes(bed.model()));
  EXPECT_EQ(bed.program().WorkspaceBytes(),
            backend->EstimateWorkspaceBytes(bed.model(), bed.options()));
  EXPECT_GT(bed.program().WorkspaceBytes(), plain.program().WorkspaceBytes());
  // Of four layers: each expert's two matrices, 2 · 64 · 32 and 32 · 64 in bfloat16.
  EXPECT_GT(bed.program().WeightBytes(), 4 * kExperts * 2 * 3 * 64 * 32);
}

TEST(CudaMoeStepsTest, RanksGiveTheSameInAnyCompany) {
  BedOptions options = WithExperts();
  options.ranks = 2;
  const std::vector<Sequence> sequences = RandomSequences(4, 12, 17);
  const std::vector<Answer> alone = Alone(sequences, 4, options);
  StepBed bed(options);
  EXPECT_EQ(bed.Serve(sequences, 4, {1, 6, 3}), alone);
  EXPECT_TRUE(bed.Works());
}

}  // namespace
}  // namespace quire::kernels::cuda::test
