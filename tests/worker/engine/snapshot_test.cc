// Snapshots of large caches: a slice behind each step, and never further than their reader.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/engine/cache_mirror.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

// An engine whose cache holds about a million blocks of one token.
class MillionBlocks {
 public:
  static constexpr int64_t kBlocks = 1'000'000;
  static constexpr int32_t kPrompt = 20'000;

  MillionBlocks() {
    EngineOptions engine;
    engine.max_model_len = kPrompt + 2000;
    engine.max_num_seqs = 8;
    engine.max_num_batched_tokens = kPrompt + 8;
    engine.block_size = 1;
    engine.page_count = kBlocks + 30'000;
    engine.vocab_size = 64;
    TagRunnerOptions runner;
    runner.cache = {1, engine.page_count, {{0, 1}}};
    runner.max_num_seqs = 8;
    runner.max_step_tokens = engine.max_num_batched_tokens;
    runner.max_model_len = engine.max_model_len;
    runner_ = std::make_unique<TagRunner>(runner);
    engine_ = std::make_unique<Engine>(engine, *runner_, progress_);
    for (int64_t filled = 0; filled < kBlocks; filled += kPrompt) {
      Send(RandomPrompt(rng_, kPrompt), 1);
      while (Once().next_wakeup_us <= kNow) continue;
    }
  }
  void Send(std::vector<TokenId> prompt, int32_t max_tokens) {
    SubmitCommand command;
    command.router = RouterInstance(1);
    command.submit.key = {RequestNumber(++requests_), Attempt(1)};
    command.submit.submit_number = requests_;
    command.submit.prompt_ids = std::move(prompt);
    command.submit.choices.resize(1);
    command.submit.sampling.temperature = 0.0f;
    command.submit.sampling.max_tokens = max_tokens;
    command.submit.sampling.ignore_eos = true;
    engine_->Apply(std::move(command), kNow);
  }
  EngineOutput Once() { return engine_->RunOnce(kNow); }
  Engine& engine() { return *engine_; }
  std::mt19937_64& rng() { return rng_; }

  static constexpr int64_t kNow = 1;

 private:
  std::mt19937_64 rng_{5};
  StepProgress progress_;
  std::unique_ptr<TagRunner> runner_;
  std::unique_ptr<Engine> engine_;
  uint64_t requests_ = 0;
};

TEST(SnapshotTest, AMillionBlocksAreResentWhileEveryStepGivesTokens) {
  MillionBlocks worker;
  const RouterInstance asking(2);
  worker.engine().Apply(WatchCommand{asking}, MillionBlocks::kNow);
  for (int stream = 0; stream < 8; ++stream) worker.Send(RandomPrompt(worker.rng(), 20), 1500);
  while (worker.Once().load.running_rows < 8) continue;
  worker.engine().Apply(SnapshotCommand{asking, 1}, MillionBlocks::kNow);
  Mirror mirror;
  int rounds = 0;
  for (; !mirror.complete && rounds < 1000; ++rounds) {
    const EngineOutput output = worker.Once();
    ASSERT_EQ(output.routers.size(), 1u);
    ASSERT_EQ(output.routers[0].outputs.size(), 8u) << "a stream got no token";
    size_t told = 0;
    for (const SnapshotPart& part : output.snapshot_parts) told += part.hashes.size();
    ASSERT_LE(told, 4096u) << "more than a slice after one step";
    mirror.Take(output);
    const uint32_t parts = static_cast<uint32_t>(output.snapshot_parts.size());
    worker.engine().Apply(SnapshotSentCommand{asking, 1, parts}, MillionBlocks::kNow);
  }
  EXPECT_TRUE(mirror.complete);
  EXPECT_GE(mirror.known.size(), 990'000u);
  EXPECT_LT(rounds, 400);
}

// Idle, a snapshot goes on without steps, but never further than its reader has read.
TEST(SnapshotTest, ASnapshotWaitsForItsReader) {
  HarnessOptions options = SmallEngine();
  options.engine.max_model_len = 30'000;
  options.engine.max_num_batched_tokens = 30'000;
  options.engine.block_size = 1;
  options.engine.page_count = 80'000;
  options.engine.cache_kinds = {{0, 1}};
  Harness harness(options);
  std::mt19937_64 rng(3);
  for (uint64_t request = 1; request <= 3; ++request) {
    harness.Send(harness.MakeSubmit(request, RandomPrompt(rng, 25'000), 1));
    harness.RunFor(0);
  }
  Mirror mirror;
  harness.Apply(SnapshotCommand{RouterInstance(7), 1});
  for (int round = 0; round < 100; ++round) {
    harness.OnceRaw();
    mirror.Take(harness.last);
  }
  EXPECT_EQ(mirror.parts, static_cast<uint32_t>(kSnapshotWindow));
  EXPECT_GT(harness.last.next_wakeup_us, harness.now_us) << "it spins";
  harness.Apply(SnapshotSentCommand{RouterInstance(7), 9, 16});  // of another snapshot
  harness.OnceRaw();
  EXPECT_TRUE(harness.last.snapshot_parts.empty());
  for (int round = 0; round < 100 && !mirror.complete; ++round) {
    harness.Apply(SnapshotSentCommand{RouterInstance(7), 1, 1});
    harness.OnceRaw();
    mirror.Take(harness.last);
  }
  EXPECT_TRUE(mirror.complete);
  // 75,000 blocks by their hash; the vocabulary makes a few of the first tokens equal.
  EXPECT_GT(mirror.known.size(), 74'900u);
  harness.Apply(SnapshotCommand{RouterInstance(7), 2});
  harness.Apply(RouterLostCommand{RouterInstance(7)});
  harness.OnceRaw();
  EXPECT_TRUE(harness.last.snapshot_parts.empty());
}

}  // namespace
}  // namespace quire::test
