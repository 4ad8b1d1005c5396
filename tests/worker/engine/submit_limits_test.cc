// Each parameter of a Submit at its limit is served, and just beyond it refused by name, without a
// trace in the pool or the queue. Huge values cost nothing.
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

using Set = std::function<void(Submit&)>;

struct Limit {
  const char* field;
  std::vector<Set> served;
  std::vector<Set> refused;
};

// One float parameter: both ends of its range, and what lies beyond or is no number.
Limit Range(const char* field, float SamplingParams::*member, std::vector<float> served,
            std::vector<float> refused) {
  Limit limit{field, {}, {}};
  refused.insert(refused.end(), {std::nanf(""), std::numeric_limits<float>::infinity()});
  for (const float value : served) {
    limit.served.push_back([=](Submit& s) { s.sampling.*member = value; });
  }
  for (const float value : refused) {
    limit.refused.push_back([=](Submit& s) { s.sampling.*member = value; });
  }
  return limit;
}

Limit Count(const char* field, int32_t SamplingParams::*member, std::vector<int32_t> served,
            std::vector<int32_t> refused) {
  Limit limit{field, {}, {}};
  for (const int32_t value : served) {
    limit.served.push_back([=](Submit& s) { s.sampling.*member = value; });
  }
  for (const int32_t value : refused) {
    limit.refused.push_back([=](Submit& s) { s.sampling.*member = value; });
  }
  return limit;
}

// The harness's vocabulary is [0, 64), its context 256.
std::vector<Limit> Numbers() {
  using P = SamplingParams;
  return {
      Range("temperature", &P::temperature, {0, 1e-30f, 100}, {-1e-6f, 100.01f}),
      Range("top_p", &P::top_p, {1e-30f, 1}, {0, 1.001f}),
      Range("min_p", &P::min_p, {0, 1}, {-0.001f, 1.001f}),
      Range("typical_p", &P::typical_p, {1e-30f, 1}, {0, 1.001f}),
      Range("repetition_penalty", &P::repetition_penalty, {1e-30f, 10}, {0, 10.001f}),
      Range("frequency_penalty", &P::frequency_penalty, {-2, 2}, {-2.001f, 2.001f}),
      Range("presence_penalty", &P::presence_penalty, {-2, 2}, {-2.001f, 2.001f}),
      Range("length_penalty", &P::length_penalty, {-10, 10}, {-10.001f, 10.001f}),
      Count("top_k", &P::top_k, {-1, 0, INT32_MAX}, {-2, INT32_MIN}),
      Count("max_tokens", &P::max_tokens, {0, 1, INT32_MAX}, {-1, INT32_MIN}),
      Count("min_tokens", &P::min_tokens, {0, 5}, {-1, 6, INT32_MAX}),
      Count("logprobs", &P::logprobs, {0, 21}, {-1, 22, INT32_MAX}),
      Count("prompt_logprobs", &P::prompt_logprobs, {0, 21}, {-1, 22, INT32_MAX}),
  };
}

std::vector<Limit> Lists() {
  std::vector<Limit> limits;
  limits.push_back({"stop_token_ids",
                    {[](Submit& s) { s.sampling.stop_token_ids.assign(128, 63); }},
                    {[](Submit& s) { s.sampling.stop_token_ids.assign(129, 63); },
                     [](Submit& s) { s.sampling.stop_token_ids = {64}; },
                     [](Submit& s) { s.sampling.stop_token_ids = {-1}; }}});
  limits.push_back({"allowed_token_ids",
                    {[](Submit& s) { s.sampling.allowed_token_ids.assign(4096, 63); }},
                    {[](Submit& s) { s.sampling.allowed_token_ids.assign(4097, 63); },
                     [](Submit& s) { s.sampling.allowed_token_ids = {64}; }}});
  limits.push_back({"logit_bias",
                    {[](Submit& s) {
                       s.sampling.logit_bias.assign(300, {63, 100.0f});
                     },
                     [](Submit& s) {
                       s.sampling.logit_bias = {{0, -100.0f}};
                     }},
                    {[](Submit& s) {
                       s.sampling.logit_bias.assign(301, {63, 1.0f});
                     },
                     [](Submit& s) {
                       s.sampling.logit_bias = {{64, 1.0f}};
                     },
                     [](Submit& s) {
                       s.sampling.logit_bias = {{1, 100.5f}};
                     },
                     [](Submit& s) {
                       s.sampling.logit_bias = {{1, std::nanf("")}};
                     }}});
  limits.push_back(
      {"bad_words",
       {[](Submit& s) { s.sampling.bad_words.assign(128, std::vector<TokenId>(64, 63)); }},
       {[](Submit& s) { s.sampling.bad_words.assign(129, {63}); },
        [](Submit& s) { s.sampling.bad_words = {std::vector<TokenId>(65, 63)}; },
        [](Submit& s) { s.sampling.bad_words = {{}}; },
        [](Submit& s) { s.sampling.bad_words = {{64}}; }}});
  limits.push_back({"salt", {[](Submit& s) { s.salt.assign(64, 's'); }}, {[](Submit& s) {
                      s.salt.assign(65, 's');
                    }}});
  limits.push_back({"tenant", {[](Submit& s) { s.tenant.assign(256, 't'); }}, {[](Submit& s) {
                      s.tenant.assign(257, 't');
                    }}});
  limits.push_back({"prompt_ids",
                    {[](Submit& s) { s.prompt_ids = std::vector<TokenId>(255, 63); },
                     [](Submit& s) { s.prompt_ids = {0}; }},
                    {[](Submit& s) { s.prompt_ids = std::vector<TokenId>(256, 63); },
                     [](Submit& s) { s.prompt_ids = {}; }, [](Submit& s) { s.prompt_ids = {64}; },
                     [](Submit& s) { s.prompt_ids = {INT32_MIN}; }}});
  limits.push_back(
      {"prediction_ids",
       {[](Submit& s) { s.prediction_ids = std::vector<TokenId>(65'536, 63); }},
       {[](Submit& s) { s.prediction_ids = std::vector<TokenId>(65'537, 63); },
        [](Submit& s) { s.prediction_ids = {64}; }, [](Submit& s) { s.prediction_ids = {-1}; }}});
  limits.push_back({"choices.outputs",
                    {[](Submit& s) { s.choices[0].outputs.assign(5, 63); },
                     [](Submit& s) { s.choices[0].outputs = {63}; }},
                    {[](Submit& s) { s.choices[0].outputs.assign(6, 63); },
                     [](Submit& s) { s.choices[0].outputs = {64}; },
                     [](Submit& s) { s.choices[0].outputs = {-1}; },
                     [](Submit& s) {
                       s.sampling.max_tokens = INT32_MAX;
                       s.choices[0].outputs.assign(300, 1);
                     }}});
  return limits;
}

TEST(SubmitLimitsTest, EachFieldOfTheTableIsHeldToItsLimits) {
  std::set<std::string> tested;
  for (const Limit& limit : Numbers()) tested.insert(limit.field);
  for (const Limit& limit : Lists()) tested.insert(limit.field);
#define QUIRE_EXPECT_TESTED(name, range, feature) \
  EXPECT_TRUE(tested.contains(#name)) << #name " has no line above: add its ends";
  QUIRE_SAMPLING_NUMBERS(QUIRE_EXPECT_TESTED)
  QUIRE_SAMPLING_LISTS(QUIRE_EXPECT_TESTED)
#undef QUIRE_EXPECT_TESTED
}

TEST(SubmitLimitsTest, AtTheLimitServedAndBeyondItRefusedByName) {
  Harness harness(SmallEngine());
  uint64_t request = 1;
  const auto send = [&](const Set& set) {
    Submit submit = harness.MakeSubmit(++request, {1, 2, 3}, 5);
    set(submit);
    harness.Send(submit);
  };
  std::vector<Limit> limits = Numbers();
  for (Limit& limit : Lists()) limits.push_back(std::move(limit));
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.field);
    for (size_t i = 0; i < limit.refused.size(); ++i) {
      SCOPED_TRACE(i);
      send(limit.refused[i]);
      harness.Once();
      const Answer& answer = harness.answer(request);
      ASSERT_EQ(answer.refused.size(), 1u);
      EXPECT_EQ(answer.refused[0].field, limit.field);
      EXPECT_EQ(answer.refused[0].code, RefusalCode::kInvalid);
      EXPECT_EQ(answer.refused[0].message.rfind(limit.field, 0), 0u);
      EXPECT_TRUE(answer.ended.empty());
      EXPECT_EQ(harness.last.load.held_blocks, 0u);
      EXPECT_EQ(harness.last.load.waiting_requests, 0u);
    }
    for (size_t i = 0; i < limit.served.size(); ++i) {
      SCOPED_TRACE(i);
      send(limit.served[i]);
      harness.RunFor(0);
      const Answer& answer = harness.answer(request);
      ASSERT_TRUE(answer.refused.empty()) << answer.refused[0].message;
      ASSERT_EQ(answer.ended.size(), 1u);
      EXPECT_TRUE(answer.ended[0].reason == EndReason::kLength ||
                  answer.ended[0].reason == EndReason::kStop);
    }
  }
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
}

}  // namespace
}  // namespace quire::test
