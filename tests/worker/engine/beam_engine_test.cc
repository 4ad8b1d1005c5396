// Beam search in the engine: what it finds depends on the request alone, it is told at its end, and
// its beams hold nothing beyond it. Against the reference: tests/golden/beam_test.cc.
#include <bit>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

HarnessOptions BeamEngine() {
  HarnessOptions options = SmallEngine();
  options.engine.max_choices = kMaxBeamWidth;
  return options;
}

Submit BeamSubmit(const Harness& harness, uint64_t request, std::vector<TokenId> prompt,
                  int32_t max_tokens, int32_t width) {
  Submit submit = harness.MakeSubmit(request, std::move(prompt), max_tokens);
  submit.choices.assign(static_cast<size_t>(width), {});
  submit.sampling.beam_width = width;
  submit.sampling.logprobs = 1;
  return submit;
}

std::vector<std::vector<TokenId>> TokensOf(Answer& answer, size_t choices) {
  std::vector<std::vector<TokenId>> tokens;
  for (uint32_t i = 0; i < choices; ++i) tokens.push_back(answer.of(i));
  return tokens;
}

TEST(BeamSearchEngine, OneBeamWithoutEndsIsGreedy) {
  const HarnessOptions options = BeamEngine();
  const Harness maker(options);
  std::mt19937_64 rng(1);
  Submit greedy = maker.MakeSubmit(1, RandomPrompt(rng, 20), 30);
  greedy.sampling.temperature = 0.0f;
  greedy.sampling.ignore_eos = true;
  greedy.sampling.logprobs = 1;
  Submit beam = greedy;
  beam.sampling.beam_width = 1;
  const Answer expected = Solo(options, greedy);
  const Answer found = Solo(options, beam);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.logprobs, expected.logprobs);
  ASSERT_EQ(found.ended.size(), 1u);
  EXPECT_EQ(found.ended[0].reason, EndReason::kLength);
}

TEST(BeamSearchEngine, AnswersAreToldAtTheEndBestFirst) {
  const HarnessOptions options = BeamEngine();
  Harness harness(options);
  std::mt19937_64 rng(2);
  Submit submit = BeamSubmit(harness, 1, RandomPrompt(rng, 21), 12, 4);
  submit.sampling.ignore_eos = true;
  submit.initial_window = 3;  // does not hold a beam search back
  harness.Send(submit);
  Answer& answer = harness.answer(1);
  int rounds = 0;
  while (answer.ended.empty() && ++rounds < 1000) {
    EXPECT_TRUE(answer.tokens.empty());
    harness.Once();
  }
  ASSERT_EQ(answer.ended.size(), 4u) << "all in one go";
  double last = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer.of(i).size(), 12u);
    double sum = 0;
    for (float logprob : answer.logprobs[i]) sum += double{logprob};
    if (i > 0) {
      EXPECT_LE(sum, last);
    }
    last = sum;
  }
  EXPECT_EQ(answer.admitted, 1);
  harness.RunFor(0);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  harness.ExpectBooksBalance();
}

TEST(BeamSearchEngine, CancelledAtAnyStepItFreesAll) {
  const HarnessOptions options = BeamEngine();
  for (int in_flight : {1, 2}) {
    for (int step = 0; step < 25; step += kAllSeeds ? 1 : 6) {
      SCOPED_TRACE(step);
      std::mt19937_64 rng(3);
      HarnessOptions pipelined = options;
      pipelined.max_in_flight = in_flight;
      pipelined.step_micros = [](int64_t) { return 100; };
      Harness harness(pipelined);
      harness.Send(BeamSubmit(harness, 1, RandomPrompt(rng, 90), 40, 5));
      for (int i = 0; i < step; ++i) {
        harness.Once();
        if (i % 2 == 0) harness.now_us += 100;
      }
      harness.Cancel(1);
      harness.RunFor(10'000);
      EXPECT_EQ(harness.answer(1).ended.size(), 5u);
      EXPECT_EQ(harness.last.load.held_blocks, 0u);
      harness.ExpectBooksBalance();
    }
  }
}

// Random neighbours, rows and pages for only some of the beams, any chunking, resumed anywhere.
TEST(BeamSearchEngine, NothingAroundItChangesIt) {
  uint64_t recomputed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    HarnessOptions options = BeamEngine();
    options.max_in_flight = static_cast<int>(1 + seed % 2);
    options.step_micros = [](int64_t tokens) { return 500 + 10 * tokens; };
    const int32_t kBlockSizes[] = {1, 2, 4, 16};
    options.engine.block_size = kBlockSizes[rng() % 4];
    options.engine.max_num_seqs = static_cast<int32_t>(1 + rng() % 12);
    options.engine.max_num_batched_tokens = static_cast<int32_t>(1 + rng() % 70);
    if (rng() % 2 == 0) {
      options.engine.cache_kinds = RandomStates(rng, options.engine);
    }
    CacheShape shape{options.engine.block_size, 1 << 20, options.engine.cache_kinds};
    const int64_t least = KvCache(shape, nullptr).PeakPages(90, options.engine.block_size);
    options.engine.page_count =
        least + static_cast<int64_t>(rng() % static_cast<uint64_t>(5 * least));
    Harness harness(options);
    std::map<uint64_t, Submit> submits;
    std::map<uint64_t, Answer> alone;
    for (uint64_t request = 1; request <= 4; ++request) {
      Submit submit =
          BeamSubmit(harness, request, RandomPrompt(rng, 1 + rng() % 50),
                     static_cast<int32_t>(1 + rng() % 30), static_cast<int32_t>(1 + rng() % 6));
      submit.sampling.length_penalty = static_cast<float>(rng() % 4) * 0.7f;
      submit.sampling.early_stopping = static_cast<EarlyStopping>(rng() % 3);
      if (rng() % 2 == 0) submit.sampling.stop_token_ids = {3, 9, 30};
      if (rng() % 3 == 0) submit.choices.resize(1 + rng() % submit.choices.size());
      if (request == 4) submit.sampling.beam_width = 0;  // a neighbour that samples
      Answer& whole = alone[request] = Solo(options, submit);
      if (rng() % 3 == 0 && request != 4) {
        // The router has had a part of each answer.
        for (uint32_t i = 0; i < submit.choices.size(); ++i) {
          const std::vector<TokenId>& tokens = whole.of(i);
          const bool all = i + 1 < submit.choices.size() && rng() % 3 == 0;  // its end too
          const size_t had = all ? tokens.size() : rng() % tokens.size();
          submit.choices[i].outputs.assign(tokens.begin(),
                                           tokens.begin() + static_cast<ptrdiff_t>(had));
          submit.choices[i].ended = all;
        }
      }
      submits[request] = submit;
      harness.Send(submit);
      harness.RunFor(static_cast<int64_t>(rng() % 20'000));
    }
    harness.RunFor(1'000'000'000);
    for (const auto& [request, submit] : submits) {
      SCOPED_TRACE(request);
      Answer& answer = harness.answer(request);
      ASSERT_EQ(answer.ended.size(),
                static_cast<size_t>(std::count_if(submit.choices.begin(), submit.choices.end(),
                                                  [](const auto& c) { return !c.ended; })));
      EXPECT_EQ(TokensOf(answer, submit.choices.size()),
                TokensOf(alone[request], submit.choices.size()));
      for (uint32_t i = 0; i < submit.choices.size(); ++i) {
        if (submit.choices[i].ended) continue;
        EXPECT_EQ(answer.end_of(i)->reason, alone[request].end_of(i)->reason);
      }
      for (const Ended& end : answer.ended) recomputed += end.usage.recomputed_tokens;
    }
    EXPECT_EQ(harness.last.load.held_blocks, 0u);
    harness.ExpectBooksBalance();
  }
  if (kAllSeeds) {
    EXPECT_GT(recomputed, 1000u) << "preemption was hardly tried";
  }
}

TEST(BeamSearchEngine, WhatDoesNotFitIsRefusedByName) {
  Harness harness(BeamEngine());
  uint64_t request = 0;
  const auto refused = [&](const std::function<void(Submit&)>& change) {
    Submit submit = BeamSubmit(harness, ++request, {1, 2, 3}, 4, 4);
    change(submit);
    harness.Send(submit);
    harness.RunFor(0);
    const Answer& answer = harness.answer(request);
    return answer.refused.empty() ? std::string("served") : answer.refused[0].field;
  };
  EXPECT_EQ(refused([](Submit&) {}), "served");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.beam_width = kMaxBeamWidth; }), "served");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.beam_width = kMaxBeamWidth + 1; }), "beam_width");
  EXPECT_EQ(refused([](Submit& s) { s.choices.resize(5); }), "n");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.length_penalty = 10.5f; }), "length_penalty");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.repetition_penalty = 1.1f; }), "repetition_penalty");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.logit_bias = {{1, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.bad_words = {{1}}; }), "bad_words");
  EXPECT_EQ(refused([](Submit& s) { s.sampling.allowed_token_ids = {1}; }), "allowed_token_ids");
  // Four beams and the model's end leave room for fifteen further ends.
  for (const TokenId ends : {15, 16}) {
    EXPECT_EQ(refused([&](Submit& s) {
                for (TokenId id = 0; id < ends; ++id) s.sampling.stop_token_ids.push_back(id);
              }),
              ends == 15 ? "served" : "stop_token_ids");
  }
}

TEST(BeamSearchEngine, NanLogitsFailItAlone) {
  Harness harness(BeamEngine());
  const Submit submit = BeamSubmit(harness, 1, {1, 2, 3}, 4, 3);
  harness.runner().program().SetNanSeed(submit.sampling.seed);
  harness.Send(submit);
  harness.RunFor(0);
  ASSERT_EQ(harness.answer(1).ended.size(), 3u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kFailed);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

}  // namespace
}  // namespace quire::test
