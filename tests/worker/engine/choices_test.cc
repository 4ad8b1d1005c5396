// Several choices of one request: they share the prompt's blocks, each has its own noise, its own
// end and its own window, and each answers as if it were the only one.
#include <bit>
#include <set>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

constexpr uint32_t kChoices = 8;

HarnessOptions ChoicesEngine() {
  HarnessOptions options = SmallEngine();
  options.engine.max_choices = kChoices;
  return options;
}

Submit WithChoices(Submit submit, uint32_t count) {
  submit.choices.assign(count, {});
  return submit;
}

// The choice alone: the same request whose other choices have ended before it came.
Answer AloneAs(const HarnessOptions& options, Submit submit, uint32_t choice) {
  for (uint32_t i = 0; i < submit.choices.size(); ++i) {
    submit.choices[i].ended = i != choice;
    submit.choices[i].outputs.clear();
  }
  submit.initial_window = 0;
  return Solo(options, submit);
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(Choices, TheFirstComputesThePromptAndAllShareIt) {
  const HarnessOptions options = ChoicesEngine();
  Harness harness(options);
  std::mt19937_64 rng(1);
  // 31 of the 32 tokens are shared: seven full blocks and a part of the eighth, in the full kind.
  Submit submit = WithChoices(harness.MakeSubmit(1, RandomPrompt(rng, 32), 8), kChoices);
  submit.sampling.ignore_eos = true;
  harness.Send(submit);
  harness.Once();
  ASSERT_TRUE(harness.answer(1).refused.empty()) << harness.answer(1).refused[0].message;
  EXPECT_EQ(harness.last.load.running_rows, 1u) << "the others wait for the prompt";
  EXPECT_EQ(harness.last.load.waiting_requests, kChoices - 1);
  harness.Once();
  EXPECT_EQ(harness.last.load.running_rows, kChoices);
  // In the full kind seven blocks shared; each choice has the block of its last prompt token alone,
  // the first one has a ninth for its second output. Two sliding groups of window 9: the blocks
  // that hold positions 24 to 31 lie in the same two blocks, of which the last is everyone's own.
  EXPECT_LE(harness.last.load.held_blocks, 7u + kChoices + 1 + 2 * (3 + kChoices + 1));
  EXPECT_GE(harness.last.load.held_blocks, 7u + kChoices + 1 + 2 * (1 + kChoices + 1));
  harness.RunFor(0);
  const Answer& answer = harness.answer(1);
  ASSERT_EQ(answer.ended.size(), kChoices);
  EXPECT_EQ(answer.admitted, 1);
  int with_usage = 0;
  for (const Ended& ended : answer.ended) {
    if (!ended.last_choice) continue;
    ++with_usage;
    EXPECT_EQ(ended.usage.prompt_tokens, 32u);
    EXPECT_EQ(ended.usage.computed_tokens, 32u + kChoices - 1);
    EXPECT_EQ(ended.usage.recomputed_tokens, kChoices - 1);
    EXPECT_EQ(ended.usage.generated_tokens - ended.usage.discarded_tokens, 8 * kChoices);
  }
  EXPECT_EQ(with_usage, 1);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  harness.ExpectBooksBalance();
}

TEST(Choices, GreedyOnesEqualASingleOneAndSampledOnesDiffer) {
  const HarnessOptions options = ChoicesEngine();
  std::mt19937_64 rng(2);
  const Harness maker(options);
  for (size_t length : {1, 2, 4, 5, 9, 40}) {
    if (!kAllSeeds && length != 9) continue;
    SCOPED_TRACE(length);
    Submit submit = maker.MakeSubmit(1, RandomPrompt(rng, length), 30);
    submit.sampling.ignore_eos = true;
    for (float temperature : {0.0f, 1.0f}) {
      submit.sampling.temperature = temperature;
      const Answer single = Solo(options, submit);
      Answer several = Solo(options, WithChoices(submit, kChoices));
      std::set<std::vector<TokenId>> different;
      for (uint32_t i = 0; i < kChoices; ++i) different.insert(several.of(i));
      EXPECT_EQ(several.tokens, single.tokens);
      EXPECT_EQ(different.size(), temperature == 0.0f ? 1u : kChoices);
    }
  }
}

TEST(Choices, OneMoreThanTheLimitIsRefusedByName) {
  Harness harness(ChoicesEngine());
  harness.Send(WithChoices(harness.MakeSubmit(1, {1, 2, 3}, 4), kChoices));
  Submit more = WithChoices(harness.MakeSubmit(2, {1, 2, 3}, 4), kChoices + 1);
  more.traceparent = "of-a-trace";
  more.tracestate = "a=b";
  more.request_id = "r-2";
  harness.Send(std::move(more));
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).ended.size(), kChoices);
  ASSERT_EQ(harness.answer(2).refused.size(), 1u);
  const Refused& refused = harness.answer(2).refused[0];
  EXPECT_EQ(refused.field, "n");
  EXPECT_EQ(refused.traceparent + " " + refused.tracestate + " " + refused.request_id,
            "of-a-trace a=b r-2")
      << "the worker's own traces tell of it";
}

// The one that computes the prompt leaves at any time: another takes its part.
TEST(Choices, TheLeaderMayLeaveAtAnyStep) {
  const HarnessOptions options = ChoicesEngine();
  std::mt19937_64 rng(3);
  const Harness maker(options);
  Submit submit = WithChoices(maker.MakeSubmit(1, RandomPrompt(rng, 150), 6), 3);
  submit.sampling.ignore_eos = true;
  Answer calm = Solo(options, submit);
  for (int step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    Harness harness(options);
    harness.Send(submit);
    for (int i = 0; i < step; ++i) harness.Once();
    harness.Apply(CancelCommand{RouterInstance(1), {{RequestNumber(1), Attempt(1)}, true, 0}});
    harness.RunFor(0);
    Answer& answer = harness.answer(1);
    EXPECT_EQ(answer.of(1), calm.of(1));
    EXPECT_EQ(answer.of(2), calm.of(2));
    EXPECT_EQ(answer.ended.size(), 3u);
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    harness.ExpectBooksBalance();
  }
}

TEST(Choices, CancellingTheRequestFreesAll) {
  std::mt19937_64 rng(4);
  for (int step = 0; step < 8; ++step) {
    SCOPED_TRACE(step);
    Harness harness(ChoicesEngine());
    harness.Send(WithChoices(harness.MakeSubmit(1, RandomPrompt(rng, 150), 60), kChoices));
    for (int i = 0; i < step; ++i) harness.Once();
    harness.Cancel(1);
    harness.RunFor(0);
    EXPECT_EQ(harness.answer(1).ended.size(), kChoices);
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    EXPECT_EQ(harness.last.load.waiting_requests, 0u);
    harness.ExpectBooksBalance();
  }
}

class ChoicesIdentity : public testing::TestWithParam<int> {
 protected:
  static HarnessOptions RandomEngine(std::mt19937_64& rng) {
    HarnessOptions options = ChoicesEngine();
    options.max_in_flight = GetParam();
    options.step_micros = [](int64_t tokens) { return 500 + 10 * tokens; };
    const int32_t kBlockSizes[] = {1, 2, 4, 16};
    options.engine.block_size = kBlockSizes[rng() % 4];
    options.engine.max_num_seqs = static_cast<int32_t>(1 + rng() % 12);
    options.engine.max_num_batched_tokens = static_cast<int32_t>(1 + rng() % 70);
    if (rng() % 3 == 0) options.engine.cache_kinds = {{0, 1}};
    if (rng() % 3 == 0) options.engine.cache_kinds = {{static_cast<int32_t>(2 + rng() % 30), 1}};
    if (rng() % 3 == 0) {
      options.engine.cache_kinds = RandomStates(rng, options.engine);
    }
    CacheShape shape{options.engine.block_size, 1 << 20, options.engine.cache_kinds};
    const KvCache measure(shape, nullptr);
    const int64_t least = measure.PeakPages(100, options.engine.block_size);
    options.engine.page_count =
        least + static_cast<int64_t>(rng() % static_cast<uint64_t>(4 * least));
    return options;
  }

  static Submit RandomSubmit(std::mt19937_64& rng, const Harness& harness, uint64_t request) {
    Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, 1 + rng() % 60),
                                       static_cast<int32_t>(1 + rng() % 40));
    submit.choices.resize(1 + rng() % kChoices);
    submit.sampling.temperature = rng() % 4 == 0 ? 0.0f : 1.0f;
    submit.sampling.ignore_eos = rng() % 2 == 0;
    submit.sampling.logprobs = static_cast<int32_t>(rng() % 3);
    if (rng() % 4 == 0) submit.sampling.repetition_penalty = 1.5f;
    if (rng() % 4 == 0) submit.sampling.min_tokens = submit.sampling.max_tokens / 2;
    if (rng() % 3 == 0) submit.initial_window = static_cast<uint32_t>(1 + rng() % 10);
    submit.priority = static_cast<int32_t>(rng() % 2);
    return submit;
  }
};

// Neighbours, little memory, windows, and any subset of the choices ended or cancelled at any time:
// the tokens and logprobs of each choice are a prefix of those that it gives alone.
TEST_P(ChoicesIdentity, NeighboursAndSiblingsChangeNothing) {
  uint64_t recomputed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed * 2 + static_cast<uint64_t>(GetParam()));
    const HarnessOptions options = RandomEngine(rng);
    Harness harness(options);
    std::map<uint64_t, Submit> submits;
    std::set<std::pair<uint64_t, uint32_t>> cut;
    for (uint64_t request = 1; request <= 5; ++request) {
      harness.Send(submits[request] = RandomSubmit(rng, harness, request));
      if (rng() % 2 == 0) harness.RunFor(static_cast<int64_t>(rng() % 20'000));
    }
    for (int round = 0; round < 120; ++round) {
      harness.RunFor(round < 40 ? 1'000 : 200'000);
      for (auto& [request, submit] : submits) {
        for (uint32_t i = 0; i < submit.choices.size(); ++i) {
          if (harness.answer(request).end_of(i) != nullptr) continue;
          const size_t have = harness.answer(request).of(i).size();
          if (submit.initial_window > 0) harness.GrantUpTo(request, have + 1 + rng() % 9, i);
          if (rng() % 300 != 0) continue;
          cut.insert({request, i});
          const AttemptKey key{RequestNumber(request), Attempt(1)};
          if (rng() % 2 == 0) {
            harness.Apply(CancelCommand{RouterInstance(1), {key, true, i}});
          } else {
            harness.Apply(FinishCommand{RouterInstance(1),
                                        {key, i, EndReason::kStop, static_cast<uint32_t>(have)}});
          }
        }
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    harness.ExpectBooksBalance();
    for (const auto& [request, submit] : submits) {
      Answer& answer = harness.answer(request);
      ASSERT_EQ(answer.ended.size(), submit.choices.size());
      for (const Ended& end : answer.ended) recomputed += end.usage.recomputed_tokens;
      for (uint32_t i = 0; i < submit.choices.size(); ++i) {
        SCOPED_TRACE(std::to_string(request) + "/" + std::to_string(i));
        Answer alone = AloneAs(options, submit, i);
        if (cut.contains({request, i})) {
          ASSERT_LE(answer.of(i).size(), alone.of(i).size());
          alone.of(i).resize(answer.of(i).size());
          if (!alone.logprobs[i].empty()) alone.logprobs[i].resize(answer.of(i).size());
        } else {
          EXPECT_EQ(answer.end_of(i)->reason, alone.end_of(i)->reason);
        }
        EXPECT_EQ(answer.of(i), alone.of(i));
        EXPECT_EQ(Bits(answer.logprobs[i]), Bits(alone.logprobs[i]));
      }
    }
  }
  if (kAllSeeds) {
    EXPECT_GT(recomputed, 1000u) << "preemption was hardly tried";
  }
}

// Each choice is resumed at a random index of its own, ended ones stay ended.
TEST_P(ChoicesIdentity, ResumeWithOutputsPerChoice) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    HarnessOptions options = RandomEngine(rng);
    const Harness maker(options);
    Submit submit = RandomSubmit(rng, maker, 1);
    submit.initial_window = 0;
    Answer calm = Solo(options, submit);
    Submit resumed = submit;
    resumed.key.attempt = Attempt(2);
    size_t open = 0;
    for (uint32_t i = 0; i < submit.choices.size(); ++i) {
      const std::vector<TokenId>& whole = calm.of(i);
      const size_t index = rng() % (whole.size() + 1);
      resumed.choices[i].outputs.assign(whole.begin(),
                                        whole.begin() + static_cast<ptrdiff_t>(index));
      resumed.choices[i].ended = index == whole.size() && rng() % 2 == 0;
      open += !resumed.choices[i].ended;
    }
    if (open == 0) continue;
    Harness harness(options);
    harness.Send(resumed);
    harness.RunFor(100'000'000);
    Answer& answer = harness.answer(1);
    EXPECT_EQ(answer.ended.size(), open);
    for (uint32_t i = 0; i < submit.choices.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answer.of(i), calm.of(i));
      if (resumed.choices[i].ended) continue;
      ASSERT_NE(answer.end_of(i), nullptr);
      EXPECT_EQ(answer.end_of(i)->reason, calm.end_of(i)->reason);
      if (submit.sampling.logprobs == 0) continue;
      const std::vector<float> rest(
          calm.logprobs[i].begin() + static_cast<ptrdiff_t>(resumed.choices[i].outputs.size()),
          calm.logprobs[i].end());
      EXPECT_EQ(Bits(answer.logprobs[i]), Bits(rest));
    }
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    harness.ExpectBooksBalance();
  }
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, ChoicesIdentity, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
