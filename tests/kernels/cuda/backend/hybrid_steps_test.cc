// Steps of a model with recurrent layers: states in pages by the tables of slots, as graphs and
// without, one and two steps in flight, in changing company: the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/kernels/cuda/backend/step_checks.h"

namespace quire::kernels::cuda::test {
namespace {

BedOptions Hybrid() {
  BedOptions options;
  options.hybrid = true;
  options.pages = 400;
  return options;
}

TEST(CudaHybridStepsTest, GraphsAndStepsInFlightChangeNoBit) {
  std::vector<Sequence> sequences = RandomSequences(7, 60, 21);
  sequences[3].prompt.resize(75, 4);  // of several runs
  BedOptions options = Hybrid();
  options.max_tokens = 420;
  ASSERT_GE(StepBed(options).options().kv.states.groups, 2) << "states go on in further pages";
  ExpectGraphsAndFlightsChangeNoBit(sequences, 10, options);
}

// Leaves runs of states of an earlier step behind the rows' own.
class StaleRunsRuntime : public StaleRuntime {
 public:
  using StaleRuntime::StaleRuntime;

 private:
  void Spoil(const InputPlaces& places, const std::vector<int32_t>& before,
             std::vector<int32_t>& piece) override {
    ASSERT_EQ(shape.state_runs, 8);
    const int64_t list = places.state_runs;
    std::copy(before.begin() + list + 2 * rows, before.begin() + list + 2 * shape.state_runs,
              piece.begin() + list + 2 * rows);
  }
};

// A sequence whose run stands twice in a step is advanced twice.
TEST(CudaHybridStepsTest, AStaleRunInAGraphIsFound) {
  EXPECT_GE(CountFoundStale<StaleRunsRuntime>(Hybrid(), 5, 2), 1);
}

TEST(CudaHybridStepsTest, OnceLoadedNoKernelIsNewAndMemoryIsConstant) {
  ExpectNothingNewOnceLoaded(Hybrid(), {3, 40, 80});
}

// What is planned is what is taken, pages aside.
TEST(CudaHybridStepsTest, WorkspaceIsWhatWasPlanned) {
  StepBed bed(Hybrid());
  ExpectMemoryAsPlanned(bed);
}

// Each has its heads of the states.
TEST(CudaHybridStepsTest, RanksAnswerAlikeInAnyCompany) {
  const std::vector<Sequence> sequences = RandomSequences(4, 40, 23);
  BedOptions options = Hybrid();
  options.ranks = 2;
  const std::vector<Answer> alone = ServeAlone(sequences, 5, options);
  StepBed bed(options);
  ASSERT_TRUE(bed.Works());
  EXPECT_EQ(bed.Serve(sequences, 5, {1, 6, 3}), alone);
  EXPECT_TRUE(bed.Works());
}

}  // namespace
}  // namespace quire::kernels::cuda::test
