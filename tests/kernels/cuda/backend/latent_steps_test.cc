// Steps of a model with latent attention: as graphs and without, one and two in flight, on two
// ranks, in changing company and long contexts: the same bits. Once loaded, memory is constant.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/backend/lowering.h"
#include "tests/kernels/cuda/backend/step_checks.h"
#include "tests/support/tiny_program.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;
using quire::test::First;

BedOptions Latents() {
  BedOptions options;
  options.latents = true;
  return options;
}

TEST(CudaLatentSteps, GraphsAndStepsInFlightChangeNoBit) {
  ExpectGraphsAndFlightsChangeNoBit(RandomSequences(7, 20, 11), 8, Latents());
}

// Notes what is launched.
class NotingRuntime : public EmulatedRuntime {
 public:
  NotingRuntime() : EmulatedRuntime(1, Checks::kNone) {}
  Error Launch(StreamId stream, const runtime::KernelHandle& kernel,
               const runtime::LaunchShape& shape) override {
    names.emplace_back(kernel.name);
    return EmulatedRuntime::Launch(stream, kernel, shape);
  }
  std::vector<std::string> names;
};

// Two norms, products of queries, latents, output, gate and down, the append, the products of heads
// on both sides of attention, the gate: a product of heads is one launch, whatever their number.
TEST(CudaLatentSteps, ALayerTakesTwelveLaunches) {
  BedOptions options = Latents();
  options.start.graphs = false;
  auto runtime = std::make_unique<NotingRuntime>();
  NotingRuntime& noted = *runtime;
  StepBed bed(options, std::move(runtime));
  bed.Serve(RandomSequences(1, 4, 3), 2, {});
  std::vector<size_t> appends;
  for (size_t i = 0; i < noted.names.size(); ++i) {
    if (noted.names[i] == "latent_append") appends.push_back(i);
  }
  ASSERT_EQ(appends.size(), 8u);  // two steps of four layers
  for (const size_t layer : {1, 2, 3, 5, 6, 7}) {
    EXPECT_EQ(appends[layer] - appends[layer - 1], 12u);
  }
}

// From the first span of 512 keys into the second.
TEST(CudaLatentSteps, LongContextsAreReplayed) {
  BedOptions options = Latents();
  options.max_rows = 2;
  options.max_tokens = 560;
  options.max_positions = 560;
  std::vector<Sequence> sequences = RandomSequences(2, 8, 13);
  for (int32_t i = 0; i < 506; ++i) sequences[1].prompt.push_back(i * 7 % 97);
  const std::vector<Answer> alone = ServeAlone(sequences, 5, options);
  StepBed bed(options);
  ASSERT_EQ(bed.Serve(sequences, 5, {2, 10, 4}), alone);
}

TEST(CudaLatentSteps, TwoRanksGiveTheSameBitsInAnyCompany) {
  const std::vector<Sequence> sequences = RandomSequences(4, 12, 15);
  BedOptions options = Latents();
  options.ranks = 2;
  const std::vector<Answer> alone = ServeAlone(sequences, 4, options);
  StepBed bed(options);
  ASSERT_EQ(bed.Serve(sequences, 4, {1, 6, 3}), alone);
  EXPECT_TRUE(bed.Works());
}

TEST(CudaLatentSteps, OnceLoadedMemoryIsConstant) {
  ExpectNothingNewOnceLoaded(Latents(), {3, 90});
  StepBed bed(Latents());
  ExpectMemoryAsPlanned(bed);
}

TEST(CudaLatentSteps, WhatNoKernelComputesIsRefusedByName) {
  const quire::test::TinyProgram tiny(5, 0, 1, {.latents = true});
  const auto refusal = [&tiny](const std::function<void(StepProgram&)>& change) {
    StepProgram program = tiny.program;
    change(program);
    DeviceProgram lowered;
    return Lower(program, lowered);
  };
  EXPECT_EQ(refusal([](StepProgram&) {}), "");
  EXPECT_EQ(refusal([](StepProgram& p) { p.head_dim = 584; }),
            "latents of 584 elements: multiples of 8 up to 576 are served; use --device cpu");
  EXPECT_EQ(refusal([](StepProgram& p) { First<LatentAppendOp>(p).rank = 28; }),
            "latent_append: latents of 28 elements and 8 that turn: multiples of 8, up to 512 and "
            "those, are served; use --device cpu");
  EXPECT_EQ(refusal([](StepProgram& p) { First<LatentAppendOp>(p).query_dim = 20; }),
            "latent_append: heads of queries have 12 elements that do not turn; multiples of 8 are "
            "served; use --device cpu");
  EXPECT_NE(refusal([](StepProgram& p) {
              p.weights[static_cast<size_t>(First<HeadLinearOp>(p).weights[0])].cols = 1024;
            }).find("up to 1016 columns in multiples of 8 are served"),
            std::string::npos);
  EXPECT_NE(refusal([](StepProgram& p) {
              p.buffers[static_cast<size_t>(First<HeadLinearOp>(p).out)].width = 20;
            }).find("the heads of a rank make 20 elements"),
            std::string::npos);
  // Zeros that fill up rows would be between gate and up.
  EXPECT_NE(refusal([](StepProgram& p) {
              for (Op& op : p.ops) {
                auto* linear = std::get_if<LinearOp>(&op);
                if (linear == nullptr || !LinearOp::IsGated(linear->activation)) continue;
                p.weights[static_cast<size_t>(linear->weight)].rows = 24;
              }
            }).find("its weight"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
