// One answer on the tag model: every token and every logprob bit is what the reference
// (tests/support/tag_reference.h) works out from the request alone, whatever the batch, the order,
// the preemptions, the pauses and the resumes.
#include <bit>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/tag_reference.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

TagModel ModelOf(const EngineOptions& engine) {
  return {{engine.block_size, engine.page_count, engine.cache_kinds},
          engine.vocab_size,
          engine.max_model_len,
          engine.eos_token_ids};
}

Submit RandomAsk(std::mt19937_64& rng, const Harness& harness, uint64_t request) {
  const auto one_in = [&rng](uint64_t n) { return rng() % n == 0; };
  Submit submit = harness.MakeSubmit(request, RandomPrompt(rng, 1 + rng() % 30),
                                     static_cast<int32_t>(2 + rng() % 22));
  SamplingParams& sampling = submit.sampling;
  sampling.seed = rng();
  sampling.temperature = one_in(4) ? 0.0f : 1.0f;
  sampling.ignore_eos = one_in(2);
  sampling.logprobs = 1;
  if (one_in(3)) sampling.frequency_penalty = 1.2f;
  if (one_in(3)) sampling.presence_penalty = 0.6f;
  if (one_in(3)) sampling.repetition_penalty = 1.4f;
  if (one_in(3)) sampling.top_k = 12;
  if (one_in(4)) sampling.top_p = 0.9f;
  if (one_in(3)) {
    sampling.min_tokens = sampling.max_tokens / 2;
    for (int i = 0; i < 8; ++i) sampling.stop_token_ids.push_back(static_cast<TokenId>(rng() % 64));
  }
  if (one_in(5)) sampling.bad_words = {{static_cast<TokenId>(rng() % 64)}};
  submit.choices.resize(one_in(3) ? 2 + rng() % 2 : 1);
  return submit;
}

// One choice against the reference; `from` outputs of it came with the Submit.
void ExpectReference(const TagModel& model, const Submit& submit, Answer& answer, uint32_t choice) {
  const ReferenceAnswer expected = TagAnswer(model, submit, choice, 0);
  ASSERT_EQ(answer.of(choice), expected.tokens);
  const Ended* ended = answer.end_of(choice);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->reason, expected.reason);
  EXPECT_EQ(ended->by_stop_token, expected.by_stop_token);
  EXPECT_EQ(ended->stop_token_id, expected.stop_token_id);
  const size_t from = submit.choices[choice].outputs.size();
  const std::vector<float>& logprobs = answer.logprobs[choice];
  ASSERT_EQ(logprobs.size() + from, expected.tokens.size());
  for (size_t i = 0; i < logprobs.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(logprobs[i]), expected.logprob_bits[from + i]) << i;
  }
}

class OneAnswerTest : public testing::TestWithParam<int> {};

// Every batch size with random neighbours, in any order, cut into any chunks.
TEST_P(OneAnswerTest, AtEveryBatchSize) {
  std::mt19937_64 rng(17);
  for (int size = 1; size <= 64; size += kAllSeeds ? 1 : 21) {
    SCOPED_TRACE(size);
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.max_choices = 3;
    options.engine.max_num_seqs = size;
    options.engine.max_num_batched_tokens = static_cast<int32_t>(1 + rng() % 100);
    options.engine.page_count = 4096;
    options.step_micros = [](int64_t tokens) { return 100 + tokens; };
    Harness harness(options);
    std::vector<Submit> submits;
    for (int i = 1; i <= size; ++i) {
      submits.push_back(RandomAsk(rng, harness, static_cast<uint64_t>(i)));
    }
    std::shuffle(submits.begin(), submits.end(), rng);
    for (const Submit& submit : submits) {
      harness.Send(submit);
      if (rng() % 4 == 0) harness.RunFor(static_cast<int64_t>(rng() % 1000));
    }
    harness.RunFor(10'000'000);
    for (const Submit& submit : submits) {
      SCOPED_TRACE(submit.key.request.value());
      Answer& answer = harness.answer(submit.key.request.value());
      for (uint32_t c = 0; c < submit.choices.size(); ++c) {
        ExpectReference(ModelOf(options.engine), submit, answer, c);
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
  }
}

// Paused at every index, its pages taken by another, then computed again: nothing changes.
TEST_P(OneAnswerTest, PausedAndPreemptedAtEveryIndex) {
  uint64_t preempted = 0;
  const uint64_t seeds = kAllSeeds ? 30 : 2;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 rng(seed);
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.page_count = 58;  // the two together do not fit
    options.engine.slow_client_timeout_us = 3'600'000'000;
    Harness harness(options);
    Submit ask = RandomAsk(rng, harness, 1);
    ask.choices.resize(1);
    const size_t length = TagAnswer(ModelOf(options.engine), ask, 0, 0).tokens.size();
    for (size_t index = 1; index < length; ++index) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " index " << index);
      const uint64_t request = 10 * index;
      ask.key.request = RequestNumber(request);
      ask.initial_window = static_cast<uint32_t>(index);
      harness.Send(ask);
      harness.RunFor(0);
      ASSERT_EQ(harness.answer(request).tokens.size(), index);
      Submit other = harness.MakeSubmit(request + 1, RandomPrompt(rng, 75), 5);
      other.sampling.ignore_eos = true;
      harness.Send(other);
      harness.RunFor(0);
      ASSERT_EQ(harness.answer(request + 1).tokens.size(), 5u);
      harness.GrantUpTo(request, 1000);
      harness.RunFor(0);
      ExpectReference(ModelOf(options.engine), ask, harness.answer(request), 0);
      if (HasFatalFailure()) return;
      preempted += harness.records.back().preemptions;
    }
  }
  EXPECT_GT(preempted, kAllSeeds ? 100u : 3 * seeds);
}

// Where a request stood when it lost its row for the first time.
struct Loss {
  bool lost = false;
  uint64_t prompt_left = 0;  // 0: all of it was planned
  size_t outputs = 0;
};

// Serves `ask` a block in a step, beside rows that have paused. After `rounds` rounds these go on
// and take the last pages; `ask`, the last in priority, is who gives way.
Loss ServeAndPreempt(Harness& harness, const Submit& ask, size_t paused_length, int rounds) {
  constexpr uint64_t kPaused = 20;
  std::mt19937_64 rng(7);
  for (uint64_t i = 1; i <= kPaused; ++i) {
    Submit paused = harness.MakeSubmit(100 + i, RandomPrompt(rng, paused_length), 9);
    paused.sampling.ignore_eos = true;
    paused.initial_window = 1;
    harness.Send(paused);
  }
  harness.RunFor(0);
  harness.Send(ask);
  const uint64_t request = ask.key.request.value();
  Loss loss;
  for (int round = 0; harness.answer(request).ended.size() < ask.choices.size(); ++round) {
    if (round > 500) {
      ADD_FAILURE() << "it never ends";
      return loss;
    }
    if (round == rounds) {
      for (uint64_t i = 1; i <= kPaused; ++i) harness.GrantUpTo(100 + i, 1000);
    }
    const uint64_t left = harness.last.load.running_prefill_tokens;
    const size_t outputs = harness.answer(request).tokens.size();
    harness.Once();
    if (loss.lost || harness.engine().totals().scheduler.preemptions == 0) continue;
    loss = {true, left, outputs};
  }
  for (uint64_t i = 1; i <= kPaused; ++i) harness.GrantUpTo(100 + i, 1000);  // if they still wait
  harness.RunFor(0);
  return loss;
}

// Preempted at every border of a chunk of its prefill and at every step of its decode.
TEST_P(OneAnswerTest, PreemptedAtEveryChunkAndEveryToken) {
  constexpr size_t kPrompt = 30;
  for (const bool caching : {true, false}) {
    for (const size_t choices : {1, 2}) {
      std::set<uint64_t> borders;
      std::set<size_t> indices;
      // They need a block at their second token, or at their first.
      for (const size_t paused_length : {7, 8}) {
        for (int rounds = 1; rounds <= 30; rounds += kAllSeeds ? 1 : 11) {
          SCOPED_TRACE(testing::Message() << caching << choices << paused_length << " " << rounds);
          HarnessOptions options = SmallEngine();
          options.max_in_flight = GetParam();
          options.engine.prefix_caching = caching;
          options.engine.scheduling_policy = SchedulingPolicy::kPriority;
          options.engine.max_choices = 2;
          options.engine.max_num_seqs = 22;
          options.engine.max_num_batched_tokens = 4;  // a chunk is a block
          options.engine.cache_kinds = {{0, 1}};
          options.engine.page_count = 20 * 2 + (choices == 1 ? 12 : 18);
          options.engine.slow_client_timeout_us = 3'600'000'000;
          Harness harness(options);
          std::mt19937_64 rng(3);
          Submit ask = harness.MakeSubmit(1, RandomPrompt(rng, kPrompt), 18);
          ask.choices.resize(choices);
          ask.priority = 1;
          ask.sampling.ignore_eos = true;
          ask.sampling.logprobs = 1;
          ask.sampling.frequency_penalty = 1.2f;
          ask.sampling.repetition_penalty = 1.4f;
          const Loss loss = ServeAndPreempt(harness, ask, paused_length, rounds);
          for (uint32_t c = 0; c < choices; ++c) {
            ExpectReference(ModelOf(options.engine), ask, harness.answer(1), c);
            if (HasFatalFailure()) return;
          }
          harness.ExpectBooksBalance();
          if (loss.lost && loss.prompt_left > 0) borders.insert(kPrompt - loss.prompt_left);
          if (loss.lost && loss.prompt_left == 0) indices.insert(loss.outputs);
        }
      }
      EXPECT_FALSE(borders.empty() || indices.empty()) << "preemption was hardly tried";
      if (!kAllSeeds) continue;
      // With two steps in flight two chunks are planned before anybody can take a page.
      const uint64_t first = 4 * static_cast<uint64_t>(GetParam());
      for (uint64_t border = first; border < kPrompt; border += 4) {
        EXPECT_TRUE(borders.contains(border)) << caching << choices << " " << border;
      }
      for (size_t index = 1; index <= 14; ++index) {
        EXPECT_TRUE(indices.contains(index)) << caching << choices << " " << index;
      }
    }
  }
}

// Resumed at every index of many requests: penalties, min_tokens, stop ids, logprobs and noise go
// on where they stood; choices that have ended stay so; the prompt's logprobs are not told again.
TEST_P(OneAnswerTest, ResumedAtEveryIndex) {
  for (uint64_t seed = 1; seed <= (kAllSeeds ? 200 : 3); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed * 3);
    HarnessOptions options = SmallEngine();
    options.max_in_flight = GetParam();
    options.engine.max_choices = 3;
    options.engine.max_num_batched_tokens = static_cast<int32_t>(4 + rng() % 60);
    Harness harness(options);
    Submit ask = RandomAsk(rng, harness, 1);
    if (rng() % 3 == 0) ask.sampling.prompt_logprobs = 1;
    std::vector<ReferenceAnswer> whole;
    size_t longest = 0;
    for (uint32_t c = 0; c < ask.choices.size(); ++c) {
      whole.push_back(TagAnswer(ModelOf(options.engine), ask, c, 0));
      longest = std::max(longest, whole.back().tokens.size());
    }
    for (size_t index = 1; index <= longest; ++index) {
      SCOPED_TRACE(index);
      Submit resumed = ask;
      resumed.key = {RequestNumber(index), Attempt(2)};
      bool any_open = false;
      for (uint32_t c = 0; c < ask.choices.size(); ++c) {
        const std::vector<TokenId>& tokens = whole[c].tokens;
        const size_t have = std::min(index, tokens.size());
        resumed.choices[c].outputs.assign(tokens.begin(),
                                          tokens.begin() + static_cast<ptrdiff_t>(have));
        // An end may have been told, or be all that was lost.
        resumed.choices[c].ended = have == tokens.size() && rng() % 2 == 0;
        any_open = any_open || !resumed.choices[c].ended;
      }
      if (!any_open) continue;
      harness.Send(resumed);
      harness.RunFor(1'000'000);
      Answer& answer = harness.answer(index);
      ASSERT_TRUE(answer.refused.empty()) << answer.refused[0].message;
      EXPECT_TRUE(answer.prompt.logprobs.empty());
      for (uint32_t c = 0; c < ask.choices.size(); ++c) {
        if (resumed.choices[c].ended) {
          EXPECT_EQ(answer.of(c), resumed.choices[c].outputs);
          EXPECT_EQ(answer.end_of(c), nullptr);
          continue;
        }
        ExpectReference(ModelOf(options.engine), resumed, answer, c);
        if (HasFatalFailure()) return;
      }
    }
    harness.ExpectBooksBalance();
  }
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, OneAnswerTest, testing::Values(1, 2));

}  // namespace
}  // namespace quire::test
