// Steps of a model with mixtures of experts and sinks: the same bits with and without graphs, with
// one and two steps in flight, in changing company and in slices; nothing new once loaded.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/backend/moe_places.h"
#include "tests/kernels/cuda/backend/step_checks.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kExperts = 5;

BedOptions WithExperts() {
  BedOptions options;
  options.experts = kExperts;
  return options;
}

TEST(CudaMoeStepsTest, GraphsStepsInFlightAndCompanyChangeNoBit) {
  ExpectGraphsAndFlightsChangeNoBit(RandomSequences(7, 20, 11), 8, WithExperts());
}

// Tiles of 8, 32 and 128 rows, in buckets with padding.
TEST(CudaMoeStepsTest, EveryWidthOfTilesHasTheSameBits) {
  BedOptions options = WithExperts();
  options.max_rows = 40;
  options.max_tokens = 400;
  options.max_positions = 32;
  const std::vector<Sequence> sequences = RandomSequences(40, 9, 12);
  const std::vector<Answer> alone = ServeAlone(sequences, 3, options);
  StepBed bed(options);
  for (const size_t rows : {3, 17, 40}) {
    const std::vector<Sequence> some(sequences.begin(),
                                     sequences.begin() + static_cast<ptrdiff_t>(rows));
    const auto answers = bed.Serve(some, 3, {2, 10, rows});
    ASSERT_TRUE(std::equal(answers.begin(), answers.end(), alone.begin())) << rows;
  }
  std::set<std::string> widths;
  for (const std::string& name : KernelsOf(bed)) {
    if (name.rfind("experts_", 0) == 0) widths.insert(name);
  }
  EXPECT_EQ(widths, (std::set<std::string>{"experts_8", "experts_32", "experts_128"}));
}

// As many tokens as a mixture takes at a time, and one more.
TEST(CudaMoeStepsTest, LongStepsAreCutIntoSlices) {
  constexpr size_t kPrompts = 4;
  BedOptions options = WithExperts();
  options.max_rows = kPrompts;
  options.max_positions = 560;
  options.max_tokens = kMoeTokens + 1;
  options.pages = kPrompts * 2 * options.max_positions;
  for (const size_t tokens : {size_t{kMoeTokens}, size_t{kMoeTokens} + 1}) {
    SCOPED_TRACE(tokens);
    std::vector<Sequence> sequences = RandomSequences(kPrompts, 4, 13);
    for (size_t i = 0; i < kPrompts; ++i) {
      std::vector<int32_t>& prompt = sequences[i].prompt;
      while (prompt.size() < (tokens + i) / kPrompts) {
        prompt.push_back(static_cast<int32_t>(prompt.size() * 7 % 97));
      }
    }
    const std::vector<Answer> alone = ServeAlone(sequences, 2, options);
    StepBed bed(options);
    EXPECT_EQ(bed.Serve(sequences, 2, {1, 10, 1}), alone);
    EXPECT_TRUE(bed.Works()) << bed.program().Failure();
  }
}

TEST(CudaMoeStepsTest, OnceLoadedNothingIsNew) {
  BedOptions options = WithExperts();
  options.max_tokens = 400;
  ExpectNothingNewOnceLoaded(options, {3, 40, 80}, 5);
}

// Loading takes what was planned, matrices of experts and routing included.
TEST(CudaMoeStepsTest, MemoryIsWhatWasPlanned) {
  StepBed bed(WithExperts());
  StepBed plain(BedOptions{});
  ExpectMemoryAsPlanned(bed);
  EXPECT_GT(bed.program().WorkspaceBytes(), plain.program().WorkspaceBytes());
  // Of four layers: each expert's two matrices, 2 · 64 · 32 and 32 · 64 in bfloat16.
  EXPECT_GT(bed.program().WeightBytes(), 4 * kExperts * 2 * 3 * 64 * 32);
}

TEST(CudaMoeStepsTest, RanksGiveTheSameInAnyCompany) {
  BedOptions options = WithExperts();
  options.ranks = 2;
  const std::vector<Sequence> sequences = RandomSequences(4, 12, 17);
  const std::vector<Answer> alone = ServeAlone(sequences, 4, options);
  StepBed bed(options);
  EXPECT_EQ(bed.Serve(sequences, 4, {1, 6, 3}), alone);
  EXPECT_TRUE(bed.Works());
}

}  // namespace
}  // namespace quire::kernels::cuda::test
