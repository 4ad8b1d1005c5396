// What has been computed is computed once: hits through the engine, what routers are told of the
// cache, and that telling delays nobody.
#include <gtest/gtest.h>

#include "tests/worker/engine/cache_mirror.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

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
       {std::vector<CacheKindShape>{{0, 1}}, {{0, 1}, {9, 2}}, {{9, 1}}, {{0, 1}, {5, 3, 100}}}) {
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
    EXPECT_EQ(harness.engine().totals().cache.hit_tokens, 40u + 52u);
    EXPECT_EQ(harness.engine().totals().cache.queried_tokens, 41u * 2 + next.size());
  }
}

// A state is kept where prompts part, once a second one has shown where that is: the third one
// continues from there.
TEST(EnginePrefixCacheTest, AStateIsKeptWherePromptsPart) {
  std::mt19937_64 rng(7);
  const std::vector<TokenId> system = RandomPrompt(rng, 26);
  HarnessOptions options = SmallEngine();
  options.engine.cache_kinds = {{0, 1}, {5, 3, 100}};
  Harness harness(options);
  constexpr uint32_t kCached[] = {0, 0, 24, 24};
  for (uint64_t request = 1; request <= 4; ++request) {
    std::vector<TokenId> prompt = system;
    prompt.insert(prompt.end(), 30, static_cast<TokenId>(request));
    harness.Send(SameSeed(harness, request, prompt));
    harness.RunFor(0);
    EXPECT_EQ(UsageOf(harness, request).cached_tokens, kCached[request - 1]) << request;
    EXPECT_EQ(harness.answer(request).tokens, Solo(options, SameSeed(harness, 9, prompt)).tokens);
  }
  harness.ExpectBooksBalance();
}

// Between borders that are kept, a long prompt keeps states at the interval alone.
TEST(EnginePrefixCacheTest, StatesAreKeptAtTheirInterval) {
  std::mt19937_64 rng(8);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 120);
  HarnessOptions options = SmallEngine();
  options.engine.max_num_batched_tokens = 200;
  options.engine.cache_kinds = {{0, 1}, {5, 3, 6}};
  Harness harness(options);
  harness.Send(SameSeed(harness, 1, prompt));
  harness.RunFor(0);
  // Its prompt is the beginning of the first one's: the hit ends at a border of the interval.
  harness.Send(SameSeed(harness, 2, {prompt.begin(), prompt.begin() + 110}));
  harness.RunFor(0);
  EXPECT_EQ(UsageOf(harness, 2).cached_tokens, 96u);
  harness.ExpectBooksBalance();
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

// Those that come together wait for the first to have computed what they share.
TEST(EnginePrefixCacheTest, EqualPromptsThatComeTogetherAreComputedOnce) {
  for (const int in_flight : {1, 2}) {
    for (const int32_t budget : {16, 64, 200}) {
      if (!kAllSeeds && budget == 64) continue;
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
      EXPECT_LE(harness.engine().totals().scheduler.computed_tokens, 50u + 5 * (2u + late));
      harness.ExpectBooksBalance();
    }
  }
}

TEST(EnginePrefixCacheTest, NobodyWaitsForAPromptThatIsGivenUp) {
  for (int steps = 1; steps <= 12; steps += kAllSeeds ? 1 : 4) {
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
    EXPECT_EQ(harness.engine().totals().scheduler.computed_tokens, 50u + 2u);
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
  for (uint64_t seed = 1; seed <= std::min<uint64_t>(20, 2 * kSeeds); ++seed) {
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
    EXPECT_GT(harness.engine().totals().cache.evicted_blocks, 100u);
  }
}

}  // namespace
}  // namespace quire::test
