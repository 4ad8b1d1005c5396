// One answer: whatever the neighbours, chunks, preemptions, pauses, cancels, resumes and drafts, a
// request's tokens are those of an engine that serves it alone.
#include <gtest/gtest.h>

#include "tests/support/guess_drafter.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

const AdapterTable& Adapters() {
  static const AdapterTable* const kTable = new AdapterTable(TagAdapterTable(0));
  return *kTable;
}

HarnessOptions RandomEngine(std::mt19937_64& rng, int max_in_flight) {
  HarnessOptions options = SmallEngine();
  options.max_in_flight = max_in_flight;
  options.step_micros = [](int64_t tokens) { return 500 + 10 * tokens; };
  const int32_t kBlockSizes[] = {1, 2, 4, 16, 64};  // the last is a GPU's
  options.engine.block_size = kBlockSizes[rng() % 5];
  options.engine.max_num_seqs = static_cast<int32_t>(1 + rng() % 8);
  options.engine.max_num_batched_tokens = static_cast<int32_t>(1 + rng() % 70);
  options.engine.max_choices = 3;
  options.engine.adapters = &Adapters();
  // Prompts share beginnings, under several salts; sometimes most block hashes collide.
  options.salt_of_seed = [](uint64_t seed) { return seed % 3; };
  if (rng() % 3 == 0) options.engine.block_hash_mask = 0xFF;
  options.engine.prefix_caching = rng() % 6 != 0;
  if (rng() % 3 == 0) options.engine.cache_kinds = {{0, 1}};
  if (rng() % 3 == 0) options.engine.cache_kinds = {{static_cast<int32_t>(2 + rng() % 30), 1}};
  if (rng() % 3 == 0) {
    options.engine.cache_kinds = RandomStates(rng, options.engine);
  }
  // From barely enough for one request to enough for several.
  CacheShape shape{options.engine.block_size, 1 << 20, options.engine.cache_kinds};
  const KvCache measure(shape, nullptr);
  const int64_t least = measure.PeakPages(140, options.engine.block_size);
  options.engine.page_count =
      least + static_cast<int64_t>(rng() % static_cast<uint64_t>(3 * least));
  return options;
}

Submit RandomSubmit(std::mt19937_64& rng, const Harness& harness, uint64_t request) {
  std::vector<TokenId> prompt = RandomPrompt(rng, 1 + rng() % 80);
  if (rng() % 3 != 0) {
    std::mt19937_64 shared(1 + rng() % 2);
    prompt = RandomPrompt(shared, prompt.size());
    if (rng() % 2 == 0) prompt.back() = 1;
  }
  Submit submit =
      harness.MakeSubmit(request, std::move(prompt), static_cast<int32_t>(1 + rng() % 60));
  submit.salt = std::to_string(submit.sampling.seed % 3);
  const int adapter = static_cast<int>(request % 3);  // the last is none
  if (adapter < kTagAdapters) submit.adapter = TagAdapterDigest(adapter);
  submit.sampling.temperature = rng() % 3 == 0 ? 0.0f : 1.0f;
  submit.sampling.ignore_eos = rng() % 2 == 0;
  if (rng() % 4 == 0) submit.sampling.frequency_penalty = 1.5f;
  if (rng() % 4 == 0) submit.sampling.min_tokens = submit.sampling.max_tokens / 2;
  if (rng() % 3 == 0) submit.initial_window = static_cast<uint32_t>(1 + rng() % 10);
  submit.priority = static_cast<int32_t>(rng() % 2);
  return submit;
}

Submit Unlimited(Submit submit) {
  submit.initial_window = 0;
  return submit;
}

// Steps in flight, and whether a drafter guesses.
class IdentityTest : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int max_in_flight() const { return std::get<0>(GetParam()); }
  bool drafts() const { return std::get<1>(GetParam()); }
};

// Random arrivals, grants and cancels; every answer is a prefix of the solo one, and all that were
// neither cancelled nor stalled are all of it.
TEST_P(IdentityTest, RandomNeighboursChangeNothing) {
  uint64_t recomputed = 0;
  uint64_t accepted = 0;
  const uint64_t seeds = kAllSeeds ? 60 : 4;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed * 2 + static_cast<uint64_t>(max_in_flight()));
    HarnessOptions options = RandomEngine(rng, max_in_flight());
    GuessDrafter drafter(2 + seed % 6, options.engine.vocab_size);
    if (drafts()) options.engine.drafter = &drafter;
    options.engine.max_drafts = static_cast<int32_t>(1 + seed % 7);
    Harness harness(options);
    std::map<uint64_t, Answer> solos;
    std::map<uint64_t, Submit> submits;
    std::map<uint64_t, bool> cancelled;
    for (uint64_t request = 1; request <= 12; ++request) {
      const Submit submit = RandomSubmit(rng, harness, request);
      submits[request] = submit;
      solos[request] = Solo(options, Unlimited(submit));
      drafter.Know(submit.sampling.seed, 0, solos[request].tokens);
      harness.Send(submit);
      if (rng() % 2 == 0) harness.RunFor(static_cast<int64_t>(rng() % 20'000));
      if (rng() % 6 == 0) {
        const uint64_t victim = 1 + rng() % request;
        cancelled[victim] |= harness.answer(victim).ended.empty();
        harness.Cancel(victim);
      }
      if (HasFatalFailure()) return;
    }
    for (int round = 0; round < 80; ++round) {
      harness.RunFor(200'000);
      for (auto& [request, submit] : submits) {
        if (submit.initial_window == 0 || !harness.answer(request).ended.empty()) continue;
        harness.GrantUpTo(request, harness.answer(request).tokens.size() + 1 + rng() % 9);
      }
    }
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    harness.ExpectBooksBalance();
    for (const auto& [request, submit] : submits) {
      SCOPED_TRACE(request);
      const Answer& solo = solos[request];
      const Answer& answer = harness.answer(request);
      ASSERT_EQ(answer.ended.size(), 1u);
      const AttemptUsage& usage = answer.ended[0].usage;
      EXPECT_EQ(usage.generated_tokens - usage.discarded_tokens, answer.tokens.size());
      if (cancelled[request]) {
        ASSERT_LE(answer.tokens.size(), solo.tokens.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), solo.tokens.begin()));
        continue;
      }
      EXPECT_EQ(answer.tokens, solo.tokens);
      EXPECT_EQ(answer.ended[0].reason, solo.ended[0].reason);
      EXPECT_EQ(usage.computed_tokens - usage.recomputed_tokens + usage.cached_tokens,
                submit.prompt_ids.size());
      recomputed += usage.recomputed_tokens;
      accepted += usage.accepted_draft_tokens;
    }
  }
  EXPECT_GT(recomputed, kAllSeeds ? 1000u : 50u) << "preemption was hardly tried";
  EXPECT_EQ(accepted > (kAllSeeds ? 1000u : 50u), drafts()) << accepted;
}

// Resumed at every index, the answer goes on as if nothing had happened.
TEST_P(IdentityTest, ResumeAtEveryIndex) {
  for (uint64_t seed = 1; seed <= (kAllSeeds ? 25 : 2); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    HarnessOptions options = RandomEngine(rng, max_in_flight());
    options.engine.page_count = 4096;
    const Harness maker(options);
    Submit submit = Unlimited(RandomSubmit(rng, maker, 1));
    const Answer solo = Solo(options, submit);
    ASSERT_EQ(solo.ended.size(), 1u);
    GuessDrafter drafter(4, options.engine.vocab_size);
    drafter.Know(submit.sampling.seed, 0, solo.tokens);
    if (drafts()) options.engine.drafter = &drafter;
    options.engine.max_drafts = 4;
    Harness harness(options);
    for (size_t index = 0; index <= solo.tokens.size(); ++index) {
      Submit resumed = submit;
      resumed.key.request = RequestNumber(100 + index);
      resumed.key.attempt = Attempt(2);
      resumed.choices[0].outputs.assign(solo.tokens.begin(),
                                        solo.tokens.begin() + static_cast<ptrdiff_t>(index));
      harness.Send(resumed);
    }
    harness.RunFor(10'000'000);
    for (size_t index = 0; index <= solo.tokens.size(); ++index) {
      SCOPED_TRACE(index);
      const Answer& answer = harness.answer(100 + index);
      EXPECT_EQ(answer.tokens, solo.tokens);
      ASSERT_EQ(answer.ended.size(), 1u);
      EXPECT_EQ(answer.ended[0].reason, solo.ended[0].reason);
      EXPECT_EQ(answer.ended[0].stop_token_id, solo.ended[0].stop_token_id);
      EXPECT_EQ(answer.ended[0].usage.generated_tokens - answer.ended[0].usage.discarded_tokens,
                solo.tokens.size() - index);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, IdentityTest,
                         testing::Combine(testing::Values(1, 2), testing::Bool()));

}  // namespace
}  // namespace quire::test
