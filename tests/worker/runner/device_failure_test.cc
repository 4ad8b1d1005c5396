// A program whose device fails is a lost device: its step counts for nothing, what was under way
// may be carried on elsewhere, and nobody is let in.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/tag_runner.h"
#include "worker/engine/engine.h"

namespace quire::test {
namespace {

// The tag model on a device that fails with its last step.
class FailingProgram final : public kernels::LoadedProgram {
 public:
  FailingProgram(const CacheShape& cache, int32_t vocab_size, int last_step)
      : works_(cache, vocab_size), last_step_(last_step) {}
  void Run(const kernels::StepBatch& batch) override {
    if (++steps < last_step_) works_.Run(batch);
  }
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float>) override { Run(batch); }
  void PoisonPage(int32_t page) override { works_.PoisonPage(page); }
  std::string Failure() const override { return steps < last_step_ ? "" : "an illegal address"; }
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return 0; }

  int steps = 0;

 private:
  TagProgram works_;
  const int last_step_;
};

SubmitCommand Request(uint64_t number) {
  SubmitCommand command;
  command.router = RouterInstance(1);
  command.submit.key = {RequestNumber(number), Attempt(1)};
  command.submit.submit_number = number;
  command.submit.prompt_ids = {1, 2, 3, 4, 5};
  command.submit.choices.resize(1);
  command.submit.sampling.max_tokens = 20;
  command.submit.sampling.ignore_eos = true;
  command.submit.model_id = "tag";
  return command;
}

class DeviceFailureTest : public testing::TestWithParam<int> {};

TEST_P(DeviceFailureTest, EndsWhatIsUnderWayAsRetryable) {
  EngineOptions options;
  options.max_model_len = 64;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.block_size = 4;
  options.page_count = 64;
  options.cache_kinds = {{0, 1}};
  options.model_id = "tag";
  options.vocab_size = 64;
  constexpr int kLastStep = 5;
  FailingProgram program({options.block_size, options.page_count, options.cache_kinds},
                         options.vocab_size, kLastStep);
  CpuRunnerOptions runner_options;
  runner_options.limits = {.max_rows = 4,
                           .max_tokens = 128,
                           .max_model_len = options.max_model_len,
                           .block_size = options.block_size,
                           .groups = 1,
                           .page_count = options.page_count,
                           .vocab_size = options.vocab_size};
  runner_options.max_in_flight = GetParam();
  runner_options.now_us = [] { return int64_t{0}; };
  CpuRunner runner(program, runner_options);
  StepProgress progress;
  Engine engine(options, runner, progress);
  engine.Apply(Request(1), 1);
  std::vector<Ended> ended;
  size_t tokens = 0;
  for (int round = 0; round < 20; ++round) {
    for (const RouterOutput& router : engine.RunOnce(round + 1).routers) {
      for (const Output& output : router.outputs) tokens += output.ids.size();
      ended.insert(ended.end(), router.ended.begin(), router.ended.end());
    }
    engine.CheckInvariants();
  }
  EXPECT_EQ(tokens, static_cast<size_t>(kLastStep - 1));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].reason, EndReason::kFailed);
  EXPECT_TRUE(ended[0].retryable);
  EXPECT_TRUE(runner.Lost());
  EXPECT_TRUE(engine.device_lost());
  EXPECT_EQ(program.steps, kLastStep) << "a lost device was asked for more";
  engine.Apply(Request(2), 30);
  const EngineOutput after = engine.RunOnce(31);
  ASSERT_EQ(after.routers.size(), 1u);
  ASSERT_EQ(after.routers[0].refused.size(), 1u);
  EXPECT_EQ(after.routers[0].refused[0].code, RefusalCode::kNotReady);
}

INSTANTIATE_TEST_SUITE_P(InFlight, DeviceFailureTest, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
