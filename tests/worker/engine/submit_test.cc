// What a Submit may not ask for is refused by name, and leaves no trace in the pool.
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

struct BadSubmit {
  const char* field;
  RefusalCode code;
  std::function<void(Submit&)> spoil;
};

const std::vector<BadSubmit>& BadSubmits() {
  static const std::vector<BadSubmit>* const kBad = new std::vector<BadSubmit>{
      {"model_id", RefusalCode::kWrongModel, [](Submit& s) { s.model_id = "other"; }},
      {"prompt_ids", RefusalCode::kInvalid, [](Submit& s) { s.prompt_ids = {}; }},
      {"prompt_ids", RefusalCode::kInvalid,
       [](Submit& s) {
         s.prompt_ids = {1, 64};
       }},
      {"prompt_ids", RefusalCode::kInvalid,
       [](Submit& s) {
         s.prompt_ids = {1, -1};
       }},
      {"prompt_ids", RefusalCode::kInvalid,
       [](Submit& s) { s.prompt_ids = std::vector<TokenId>(256, 1); }},
      {"n", RefusalCode::kInvalid, [](Submit& s) { s.choices.clear(); }},
      {"n", RefusalCode::kInvalid, [](Submit& s) { s.choices.resize(2); }},
      {"choices.ended", RefusalCode::kInvalid, [](Submit& s) { s.choices[0].ended = true; }},
      {"choices.outputs", RefusalCode::kInvalid,
       [](Submit& s) { s.choices[0].outputs.assign(6, 1); }},
      {"choices.outputs", RefusalCode::kInvalid, [](Submit& s) { s.choices[0].outputs = {99}; }},
      {"salt", RefusalCode::kInvalid, [](Submit& s) { s.salt.assign(65, 'x'); }},
      {"tenant", RefusalCode::kInvalid, [](Submit& s) { s.tenant.assign(257, 'x'); }},
      {"temperature", RefusalCode::kInvalid,
       [](Submit& s) { s.sampling.temperature = std::nanf(""); }},
      {"top_p", RefusalCode::kInvalid, [](Submit& s) { s.sampling.top_p = 0.0f; }},
      {"max_tokens", RefusalCode::kInvalid, [](Submit& s) { s.sampling.max_tokens = -1; }},
      {"stop_token_ids", RefusalCode::kInvalid,
       [](Submit& s) { s.sampling.stop_token_ids = {64}; }},
      {"beam_width", RefusalCode::kInvalid, [](Submit& s) { s.sampling.beam_width = 17; }},
      {"prompt_logprobs", RefusalCode::kInvalid,
       [](Submit& s) { s.sampling.prompt_logprobs = kMaxLogprobs + 2; }},
      {"adapter", RefusalCode::kUnsupported, [](Submit& s) { s.adapter = "lora"; }},
      {"constraint", RefusalCode::kUnsupported,
       [](Submit& s) { s.constraint.kind = ConstraintKind::kRegex; }},
      {"telepathy", RefusalCode::kUnsupported,
       [](Submit& s) { s.required_features = {"telepathy"}; }},
  };
  return *kBad;
}

TEST(SubmitTest, RefusedByNameWithoutATrace) {
  Harness harness(SmallEngine());
  uint64_t request = 1;
  for (const BadSubmit& bad : BadSubmits()) {
    Submit submit = harness.MakeSubmit(request, {1, 2, 3}, 5);
    bad.spoil(submit);
    harness.Send(submit);
    harness.Once();
    SCOPED_TRACE(bad.field);
    ASSERT_EQ(harness.answer(request).refused.size(), 1u);
    EXPECT_EQ(harness.answer(request).refused[0].code, bad.code);
    EXPECT_EQ(harness.answer(request).refused[0].field, bad.field);
    EXPECT_NE(harness.answer(request).refused[0].message, "");
    EXPECT_TRUE(harness.answer(request).ended.empty());
    ++request;
  }
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  EXPECT_EQ(harness.last.load.waiting_requests, 0u);
  harness.Send(harness.MakeSubmit(request, {1, 2, 3}, 5));
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(request).ended.size(), 1u);
}

TEST(SubmitTest, LimitsThemselvesAreServed) {
  HarnessOptions options = SmallEngine();
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, std::vector<TokenId>(255, 63), 1'000'000);
  submit.salt.assign(64, 's');
  submit.tenant.assign(256, 't');
  submit.sampling.temperature = 100.0f;
  submit.sampling.top_k = std::numeric_limits<int32_t>::max();
  harness.Send(submit);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).tokens.size(), 1u);
}

TEST(SubmitTest, WhatCanNeverFitIsRefusedAtOnce) {
  HarnessOptions options = SmallEngine();
  options.engine.cache_kinds = {{0, 1}};
  options.engine.page_count = 10;  // 40 tokens
  Harness harness(options);
  Submit fits = harness.MakeSubmit(1, std::vector<TokenId>(30, 1), 10);
  fits.sampling.ignore_eos = true;
  Submit too_large = harness.MakeSubmit(2, std::vector<TokenId>(30, 1), 11);
  harness.Send(fits);
  harness.Send(too_large);
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).tokens.size(), 10u);
  ASSERT_EQ(harness.answer(2).refused.size(), 1u);
  EXPECT_EQ(harness.answer(2).refused[0].code, RefusalCode::kTooLarge);
}

TEST(SubmitTest, QueueFullAtTheLimit) {
  HarnessOptions options = SmallEngine();
  options.engine.max_waiting_requests = 3;
  Harness harness(options);
  for (uint64_t request = 1; request <= 4; ++request) {
    harness.Send(harness.MakeSubmit(request, {1, 2, 3}, 5));
  }
  harness.RunFor(0);
  for (uint64_t request = 1; request <= 3; ++request) {
    EXPECT_EQ(harness.answer(request).ended.size(), 1u);
  }
  ASSERT_EQ(harness.answer(4).refused.size(), 1u);
  EXPECT_EQ(harness.answer(4).refused[0].code, RefusalCode::kQueueFull);
  EXPECT_GT(harness.answer(4).refused[0].retry_after_ms, 0u);
}

TEST(SubmitTest, RepeatedStaleAndNewerAttempts) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3}, 100);
  submit.sampling.ignore_eos = true;
  submit.key.attempt = Attempt(5);
  harness.Send(submit);
  harness.Send(submit);  // the same again
  submit.key.attempt = Attempt(4);
  harness.Send(submit);
  harness.Once();
  ASSERT_EQ(harness.answer(1).refused.size(), 2u);
  EXPECT_EQ(harness.answer(1).refused[0].code, RefusalCode::kDuplicate);
  EXPECT_EQ(harness.answer(1).refused[1].code, RefusalCode::kStaleAttempt);

  submit.key.attempt = Attempt(6);  // the router has given attempt 5 up
  harness.Send(submit);
  harness.Once();
  ASSERT_EQ(harness.answer(1).ended.size(), 1u);
  EXPECT_EQ(harness.answer(1).ended[0].reason, EndReason::kCancelled);
  EXPECT_EQ(harness.answer(1).ended[0].key.attempt, Attempt(5));
  harness.answer(1) = Answer();
  harness.RunFor(1'000'000);
  EXPECT_EQ(harness.answer(1).tokens.size(), 100u);
  harness.Send(submit);  // it has ended, but is remembered
  harness.Once();
  ASSERT_EQ(harness.answer(1).refused.size(), 1u);
  EXPECT_EQ(harness.answer(1).refused[0].code, RefusalCode::kDuplicate);
}

TEST(SubmitTest, ChoicesDifferAndEndOneByOne) {
  HarnessOptions options = SmallEngine();
  options.engine.max_choices = 3;
  options.step_micros = [](int64_t) { return 1000; };
  Harness harness(options);
  Submit submit = harness.MakeSubmit(1, {1, 2, 3, 4, 5}, 30);
  submit.sampling.ignore_eos = true;
  submit.choices.resize(3);
  submit.choices[1].ended = true;
  harness.Apply(SubmitCommand{RouterInstance(1), submit, kNeverMicros});
  std::map<uint32_t, std::vector<TokenId>> tokens;
  std::vector<Ended> ended;
  const auto run = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      harness.last.routers.clear();
      harness.now_us += 1000;
      harness.OnceRaw();
      for (const RouterOutput& router : harness.last.routers) {
        for (const Output& output : router.outputs) {
          EXPECT_EQ(output.first_index, tokens[output.choice].size());
          tokens[output.choice].push_back(output.ids[0]);
        }
        ended.insert(ended.end(), router.ended.begin(), router.ended.end());
      }
    }
  };
  run(10);
  harness.Apply(CancelCommand{RouterInstance(1), {{RequestNumber(1), Attempt(1)}, true, 0}});
  run(40);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].choice, 0u);
  EXPECT_EQ(ended[0].reason, EndReason::kCancelled);
  EXPECT_FALSE(ended[0].last_choice);
  EXPECT_EQ(ended[1].choice, 2u);
  EXPECT_TRUE(ended[1].last_choice);
  EXPECT_EQ(tokens.count(1), 0u);
  EXPECT_EQ(tokens[2].size(), 30u);
  EXPECT_FALSE(std::equal(tokens[0].begin(), tokens[0].end(), tokens[2].begin()));
  EXPECT_EQ(ended[1].usage.generated_tokens - ended[1].usage.discarded_tokens,
            tokens[0].size() + tokens[2].size());
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

}  // namespace
}  // namespace quire::test
