// Whole steps, kernel after kernel, with all that the emulated grid checks: what one launch leaves
// for the next is ordered, in graphs too, and nothing is used before a kernel has waited for those
// in front of it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/kernels/cuda/backend/step_bed.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;

void ExpectCleanSteps(BedOptions options) {
  const std::vector<Sequence> sequences = RandomSequences(3, 20, 11);
  options.max_rows = 4;
  options.max_tokens = 64;
  options.max_positions = 32;
  std::vector<Answer> expected;
  {
    StepBed unchecked(options);
    expected = unchecked.Serve(sequences, 4, {1, 10, 1});
  }
  for (const bool graphs : {false, true}) {
    options.start.graphs = graphs;
    StepBed bed(options, std::make_unique<EmulatedRuntime>(5, Checks::kAll));
    EXPECT_EQ(bed.Serve(sequences, 4, {2, 7, 2}), expected);
    EXPECT_EQ(bed.program().Failure(), "");
  }
}

TEST(CudaChainTest, StepsInFlightAndGraphsAreCleanAndGiveTheSameBits) {
  for (const int experts : {0, 3}) {
    SCOPED_TRACE(experts);
    BedOptions options;
    options.experts = experts;
    options.pages = 16;
    ExpectCleanSteps(options);
  }
}

TEST(CudaChainTest, StepsOfHybridsAreCleanAndGiveTheSameBits) {
  BedOptions options;
  options.hybrid = true;
  options.pages = 32;
  ExpectCleanSteps(options);
}

TEST(CudaChainTest, StepsOfLatentAttentionAreCleanAndGiveTheSameBits) {
  BedOptions options;
  options.latents = true;
  options.pages = 16;
  ExpectCleanSteps(options);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
