// What has been computed is computed once: hits through the engine, what routers are told of the
// cache, and that telling delays nobody.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

// What a router that watches knows: (kind, hash) of every published block.
class Mirror {
 public:
  void Take(const EngineOutput& output) {
    size_t next = 0;
    for (const SnapshotPart& part : output.snapshot_parts) {
      while (next < output.events.size() && output.first_event_seq + next <= part.event_seq) {
        Apply(output.events[next++]);
      }
      if (part.index == 0) parts = 0;  // a newer snapshot has begun
      EXPECT_EQ(part.index, parts++);
      EXPECT_LE(part.hashes.size() * 16, (64u << 10) - 256);
      EXPECT_EQ(part.hashes.size(), part.parents.size());
      for (uint64_t hash : part.hashes) known.emplace(part.cache_kind, hash);
      complete = complete || part.last;
    }
    while (next < output.events.size()) Apply(output.events[next++]);
  }
  void Forget() {
    known.clear();
    complete = false;
  }

  std::set<std::pair<uint32_t, uint64_t>> known;
  uint32_t parts = 0;
  bool complete = false;

 private:
  void Apply(const CacheEvents& event) {
    for (uint64_t hash : event.hashes) {
      const std::pair<uint32_t, uint64_t> block{event.cache_kind, hash};
      if (event.kind == CacheEvents::Kind::kStored) known.insert(block);
      if (event.kind == CacheEvents::Kind::kRemoved) known.erase(block);
    }
  }
};

const AttemptUsage& UsageOf(Harness& harness, uint64_t request) {
  return harness.answer(request).ended.at(0).usage;
}

Submit SameSeed(const Harness& harness, uint64_t request, std::vector<TokenId> prompt) {
  Submit submit = harness.MakeSubmit(request, std::move(prompt), 12);
  submit.sampling.seed = 3;
  submit.sampling.ignore_eos = true;
  return submit;
}

TEST(EnginePrefixCacheTest, EqualBeginningsAreComputedOnce) {
  std::mt19937_64 rng(1);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 41);
  for (const std::vector<CacheKindShape>& kinds :
       {std::vector<CacheKindShape>{{0, 1}}, {{0, 1}, {9, 2}}, {{9, 1}}}) {
    HarnessOptions options = SmallEngine();
    options.engine.cache_kinds = kinds;
    Harness harness(options);
    for (uint64_t request = 1; request <= 2; ++request) {
      harness.Send(SameSeed(harness, request, prompt));
      harness.RunFor(0);
    }
    EXPECT_EQ(harness.answer(1).admission.cached_tokens, 0u);
    EXPECT_EQ(harness.answer(1).admission.event_seq, 0u);
    EXPECT_EQ(harness.answer(2).admission.cached_tokens, 40u);
    EXPECT_GT(harness.answer(2).admission.event_seq, 0u);
    EXPECT_LE(harness.answer(2).admission.event_seq, harness.last.event_seq);
    EXPECT_EQ(UsageOf(harness, 2).cached_tokens, 40u);
    EXPECT_EQ(UsageOf(harness, 2).computed_tokens, 1u);
    EXPECT_EQ(harness.answer(1).tokens, harness.answer(2).tokens);
    EXPECT_EQ(harness.answer(2).tokens, Solo(options, SameSeed(harness, 9, prompt)).tokens);
    // What was decoded is there, too: the next turn of a conversation.
    std::vector<TokenId> next = prompt;
    next.insert(next.end(), harness.answer(1).tokens.begin(), harness.answer(1).tokens.end());
    next.insert(next.end(), {1, 2, 3});
    harness.Send(SameSeed(harness, 3, next));
    harness.RunFor(0);
    EXPECT_EQ(UsageOf(harness, 3).cached_tokens, (41u + 11u) / 4 * 4);
    EXPECT_EQ(harness.answer(3).tokens, Solo(options, SameSeed(harness, 9, next)).tokens);
    harness.ExpectBooksBalance();
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    EXPECT_GT(harness.last.load.evictable_blocks, 0u);
    EXPECT_EQ(harness.engine().totals().cache_hit_tokens, 40u + 52u);
    EXPECT_EQ(harness.engine().totals().cache_queried_tokens, 41u * 2 + next.size());
  }
}

// Those that come together wait for the first to have computed what they share.
TEST(EnginePrefixCacheTest, EqualPromptsThatComeTogetherAreComputedOnce) {
  for (const int in_flight : {1, 2}) {
    for (const int32_t budget : {16, 64, 200}) {
      SCOPED_TRACE(testing::Message() << in_flight << " in flight, steps of " << budget);
      std::mt19937_64 rng(2);
      const std::vector<TokenId> prompt = RandomPrompt(rng, 50);
      HarnessOptions options = SmallEngine();
      options.max_in_flight = in_flight;
      options.step_micros = [](int64_t tokens) { return 100 + tokens; };
      options.engine.max_num_batched_tokens = budget;
      Harness harness(options);
      for (uint64_t request = 1; request <= 6; ++request) {
        harness.Send(SameSeed(harness, request, prompt));
      }
      harness.RunFor(1'000'000);
      const Answer solo = Solo(options, SameSeed(harness, 9, prompt));
      for (uint64_t request = 1; request <= 6; ++request) {
        EXPECT_EQ(harness.answer(request).tokens, solo.tokens);
        // With two in flight the last piece, too short to wait for, may still be under way.
        const uint32_t least = in_flight == 1 ? 48 : 48 - kMinAwaitedTokens + 1;
        EXPECT_GE(UsageOf(harness, request).cached_tokens, request == 1 ? 0u : least);
      }
      const uint64_t late = in_flight == 1 ? 0 : kMinAwaitedTokens - 1;
      EXPECT_LE(harness.engine().totals().computed_tokens, 50u + 5 * (2u + late));
      harness.ExpectBooksBalance();
    }
  }
}

TEST(EnginePrefixCacheTest, NobodyWaitsForAPromptThatIsGivenUp) {
  for (int steps = 1; steps <= 12; ++steps) {
    SCOPED_TRACE(steps);
    std::mt19937_64 rng(3);
    const std::vector<TokenId> prompt = RandomPrompt(rng, 50);
    HarnessOptions options = SmallEngine();
    options.engine.max_num_batched_tokens = 4;
    Harness harness(options);
    for (uint64_t request = 1; request <= 3; ++request) {
      harness.Send(SameSeed(harness, request, prompt));
    }
    for (int i = 0; i < steps; ++i) harness.Once();
    harness.Cancel(1);
    harness.RunFor(0);
    // The second goes on where the first stood.
    EXPECT_EQ(harness.engine().totals().computed_tokens, 50u + 2u);
    EXPECT_EQ(harness.answer(2).tokens, Solo(options, SameSeed(harness, 9, prompt)).tokens);
    EXPECT_EQ(harness.answer(3).tokens, harness.answer(2).tokens);
    harness.ExpectBooksBalance();
  }
}

TEST(EnginePrefixCacheTest, AnotherSaltSharesNothing) {
  HarnessOptions options = SmallEngine();
  options.salt_of_seed = [](uint64_t seed) { return seed; };
  Harness harness(options);
  const std::vector<TokenId> prompt(30, 7);
  for (uint64_t request = 1; request <= 4; ++request) {
    Submit submit = SameSeed(harness, request, prompt);
    submit.sampling.seed = request % 2;
    submit.salt = std::to_string(request % 2);
    harness.Send(submit);
    harness.RunFor(0);
    EXPECT_EQ(harness.answer(request).admission.cached_tokens, request > 2 ? 28u : 0u);
    EXPECT_EQ(harness.answer(request).tokens, Solo(options, submit).tokens);
  }
  EXPECT_NE(harness.answer(1).tokens, harness.answer(2).tokens);
}

TEST(EnginePrefixCacheTest, SwitchedOffNothingIsKeptOrTold) {
  HarnessOptions options = SmallEngine();
  options.engine.prefix_caching = false;
  Harness harness(options);
  harness.Apply(WatchCommand{RouterInstance(1)});
  for (uint64_t request = 1; request <= 2; ++request) {
    harness.Send(SameSeed(harness, request, std::vector<TokenId>(30, 7)));
    harness.RunFor(0);
    EXPECT_EQ(UsageOf(harness, request).cached_tokens, 0u);
    EXPECT_EQ(UsageOf(harness, request).computed_tokens, 30u);
  }
  EXPECT_EQ(harness.last.event_seq, 0u);
  EXPECT_EQ(harness.last.load.evictable_blocks, 0u);
  harness.Apply(SnapshotCommand{RouterInstance(1), 1});
  harness.OnceRaw();
  ASSERT_EQ(harness.last.snapshot_parts.size(), 1u);
  EXPECT_TRUE(harness.last.snapshot_parts[0].last);
  const auto features = ServedFeatures(options.engine);
  EXPECT_EQ(std::count(features.begin(), features.end(), "snapshot"), 0);
}

// A watcher from the start and one that asks for snapshots under load know the same at any time.
TEST(EnginePrefixCacheTest, SnapshotsUnderLoadEndExact) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    HarnessOptions options = SmallEngine();
    options.max_in_flight = 1 + static_cast<int>(seed % 2);
    options.step_micros = [](int64_t) { return 100; };
    options.engine.block_size = 1;
    options.engine.page_count = 2000;
    Harness harness(options);
    const RouterInstance asking(2);
    harness.Apply(WatchCommand{RouterInstance(1)});
    Mirror all, snapshot;
    uint64_t number = 0;
    int completed = 0;
    for (int round = 0; round < 400; ++round) {
      if (round % 7 == 0) {
        harness.Send(harness.MakeSubmit(static_cast<uint64_t>(round + 1),
                                        RandomPrompt(rng, 1 + rng() % 120), 40));
      }
      if (rng() % 40 == 0) {
        harness.Apply(SnapshotCommand{asking, ++number});
        snapshot.Forget();
      }
      harness.Once();
      harness.now_us =
          std::max(harness.now_us, std::min(harness.last.next_wakeup_us, harness.now_us + 100));
      all.Take(harness.last);
      if (number > 0) snapshot.Take(harness.last);
      const uint32_t parts = static_cast<uint32_t>(harness.last.snapshot_parts.size());
      if (parts > 0) harness.Apply(SnapshotSentCommand{asking, number, parts});
      if (!snapshot.complete) continue;
      ++completed;
      ASSERT_EQ(snapshot.known, all.known);
    }
    EXPECT_GT(completed, 0);
    EXPECT_GT(harness.engine().totals().cache_evicted_blocks, 100u);
  }
}

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

TEST(EnginePrefixCacheTest, AMillionBlocksAreResentWhileEveryStepGivesTokens) {
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
TEST(EnginePrefixCacheTest, ASnapshotWaitsForItsReader) {
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
