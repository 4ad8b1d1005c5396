#include "common/wire/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace quire {
namespace {

TEST(NumberRange, IsWhatItsTextSays) {
  constexpr NumberRange closed("[-2, 20]");
  EXPECT_TRUE(closed.Holds(-2) && closed.Holds(20));
  EXPECT_FALSE(closed.Holds(-2.01) || closed.Holds(20.01) || closed.Holds(NAN));
  constexpr NumberRange open("(0, 1]");
  EXPECT_TRUE(open.Holds(1e-300) && open.Holds(1));
  EXPECT_FALSE(open.Holds(0) || open.Holds(1.01) || open.Holds(INFINITY));
  constexpr NumberRange in_words("[0, the context]");
  EXPECT_TRUE(in_words.Holds(2147483647));
  EXPECT_FALSE(in_words.Holds(-1) || in_words.Holds(INFINITY));
}

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(ValidateSamplingParams({}, 100).ok()); }

TEST(SamplingParams, EachLimitWorksAndOnePastItIsRefusedByName) {
  struct Case {
    std::string field;
    std::function<void(SamplingParams&)> good, bad;
  };
  const Case cases[] = {
      {"temperature", [](auto& p) { p.temperature = 100; },
       [](auto& p) { p.temperature = 100.1f; }},
      {"temperature", [](auto& p) { p.temperature = 0; }, [](auto& p) { p.temperature = NAN; }},
      {"top_p", [](auto& p) { p.top_p = 1e-6f; }, [](auto& p) { p.top_p = 0; }},
      {"top_k", [](auto& p) { p.top_k = -1; }, [](auto& p) { p.top_k = -2; }},
      {"min_p", [](auto& p) { p.min_p = 1; }, [](auto& p) { p.min_p = 1.01f; }},
      {"typical_p", [](auto& p) { p.typical_p = 1; }, [](auto& p) { p.typical_p = 0; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 10; },
       [](auto& p) { p.repetition_penalty = 0; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -2; },
       [](auto& p) { p.frequency_penalty = -2.1f; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 2; },
       [](auto& p) { p.presence_penalty = INFINITY; }},
      {"max_tokens", [](auto& p) { p.max_tokens = 0; }, [](auto& p) { p.max_tokens = -1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = 16; }, [](auto& p) { p.min_tokens = 17; }},
      {"logprobs", [](auto& p) { p.logprobs = 21; }, [](auto& p) { p.logprobs = 22; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids.assign(kMaxStopTokenIds, 99); },
       [](auto& p) { p.stop_token_ids.assign(kMaxStopTokenIds + 1, 0); }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {0}; },
       [](auto& p) { p.stop_token_ids = {100}; }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias.assign(kMaxLogitBias, {1, -100.f});
       },
       [](auto& p) {
         p.logit_bias = {{1, 101.f}};
       }},
      {"allowed_token_ids", [](auto& p) { p.allowed_token_ids = {99}; },
       [](auto& p) { p.allowed_token_ids = {-1}; }},
      {"bad_words",
       [](auto& p) {
         p.bad_words = {{1, 2}};
       },
       [](auto& p) { p.bad_words = {{}}; }},
  };
  for (const Case& c : cases) {
    SamplingParams good, bad;
    c.good(good);
    c.bad(bad);
    EXPECT_TRUE(ValidateSamplingParams(good, 100).ok()) << c.field;
    const absl::Status refused = ValidateSamplingParams(bad, 100);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_EQ(StatusMessage(refused).rfind(c.field + ":", 0), 0u) << StatusMessage(refused);
  }
}

}  // namespace
}  // namespace quire
