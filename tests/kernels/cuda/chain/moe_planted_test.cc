// Bugs of mixtures and sinks that are planted into whole steps: each is found, because a token's
// bits follow its company, or because a key that was decoded counts otherwise than one of a prompt.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "tests/kernels/cuda/backend/step_bed.h"
#include "tests/kernels/cuda/planted/moe_planted.h"

namespace quire::kernels::cuda::test {
namespace {

enum class Bug { kNone, kTieByPosition, kSinkForgottenInMerge };

class PlantedRuntime : public emulate::EmulatedRuntime {
 public:
  explicit PlantedRuntime(Bug bug) : EmulatedRuntime(3, emulate::Checks::kNone), bug_(bug) {}
  Error Launch(StreamId stream, const runtime::KernelHandle& kernel,
               const runtime::LaunchShape& shape) override {
    const std::string name = kernel.name;
    if (bug_ == Bug::kTieByPosition && name == "route") {
      return EmulatedRuntime::Launch(stream, RouteWithTiesByPosition(), shape);
    }
    const bool merges = name.rfind("attention_decode", 0) == 0 && shape.grid_z > 1;
    if (bug_ != Bug::kSinkForgottenInMerge || !merges) {
      return EmulatedRuntime::Launch(stream, kernel, shape);
    }
    AttentionParams params;
    std::memcpy(&params, shape.params, sizeof params);
    params.sinks = nullptr;
    runtime::LaunchShape wrong = shape;
    wrong.params = &params;
    return EmulatedRuntime::Launch(stream, kernel, wrong);
  }

 private:
  const Bug bug_;
};

std::unique_ptr<StepBed> Bed(Bug bug, BedOptions options) {
  options.experts = 5;
  return std::make_unique<StepBed>(options, std::make_unique<PlantedRuntime>(bug));
}

bool CompanyChangesSomeBit(Bug bug) {
  const std::vector<Sequence> sequences = RandomSequences(6, 20, 11);
  BedOptions options;
  options.max_positions = 32;
  const auto alone = Bed(bug, options)->Serve(sequences, 6, {.alone = true});
  return Bed(bug, options)->Serve(sequences, 6, {2, 6, 1}) != alone;
}

TEST(CudaPlantedMixtures, TieByPositionInBatchIsFound) {
  EXPECT_FALSE(CompanyChangesSomeBit(Bug::kNone));
  EXPECT_TRUE(CompanyChangesSomeBit(Bug::kTieByPosition));
}

// The second token after a prompt of more than a span: decoded, and behind the prompt with the
// first.
bool DecodeDiffersFromPrefill(Bug bug) {
  BedOptions options;
  options.max_rows = 1;
  options.max_tokens = options.max_positions = 560;
  std::vector<Sequence> sequences(1);
  for (int32_t i = 0; i < 530; ++i) sequences[0].prompt.push_back(i * 7 % 97);
  const Answer decoded = Bed(bug, options)->Serve(sequences, 2, {})[0];
  sequences[0].prompt.push_back(decoded.tokens[0]);
  const Answer whole = Bed(bug, options)->Serve(sequences, 1, {})[0];
  const std::vector<uint32_t> last(
      decoded.logprob_bits.end() - static_cast<ptrdiff_t>(whole.logprob_bits.size()),
      decoded.logprob_bits.end());
  return whole.tokens[0] != decoded.tokens[1] || whole.logprob_bits != last;
}

TEST(CudaPlantedMixtures, SinkForgottenInTheMergeOfSpansIsFound) {
  EXPECT_FALSE(DecodeDiffersFromPrefill(Bug::kNone));
  EXPECT_TRUE(DecodeDiffersFromPrefill(Bug::kSinkForgottenInMerge));
}

}  // namespace
}  // namespace quire::kernels::cuda::test
