// Sampling over gRPC: every field at its limit and just beyond it, and the prompt's side of an
// answer.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "router/grpc/messages.h"

namespace quire {
namespace {

using Options = v1::SamplingOptions;
using Set = std::function<void(Options&)>;

struct Limit {
  const char* field;
  std::vector<Set> served;
  std::vector<Set> refused;
};

template <class List, class Value>
void Fill(List* list, Value value, int count) {
  for (int i = 0; i < count; ++i) *list->Add() = value;
}

std::vector<Limit> Numbers() {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {
      {"temperature",
       {[](Options& s) { s.set_temperature(0); }, [](Options& s) { s.set_temperature(100); }},
       {[](Options& s) { s.set_temperature(100.01f); }, [](Options& s) { s.set_temperature(kNaN); },
        [](Options& s) { s.set_temperature(kInfinity); }}},
      {"top_p",
       {[](Options& s) { s.set_top_p(1); }},
       {[](Options& s) { s.set_top_p(0); }, [](Options& s) { s.set_top_p(1.001f); }}},
      {"top_k",
       {[](Options& s) { s.set_top_k(-1); }, [](Options& s) { s.set_top_k(INT32_MAX); }},
       {[](Options& s) { s.set_top_k(-2); }}},
      {"min_p",
       {[](Options& s) { s.set_min_p(0); }, [](Options& s) { s.set_min_p(1); }},
       {[](Options& s) { s.set_min_p(-0.01f); }, [](Options& s) { s.set_min_p(1.01f); }}},
      {"typical_p",
       {[](Options& s) { s.set_typical_p(1); }},
       {[](Options& s) { s.set_typical_p(0); }, [](Options& s) { s.set_typical_p(1.01f); }}},
      {"repetition_penalty",
       {[](Options& s) { s.set_repetition_penalty(10); }},
       {[](Options& s) { s.set_repetition_penalty(0); },
        [](Options& s) { s.set_repetition_penalty(10.01f); }}},
      {"frequency_penalty", {[](Options& s) { s.set_frequency_penalty(2); }}, {[](Options& s) {
         s.set_frequency_penalty(-2.01f);
       }}},
      {"presence_penalty", {[](Options& s) { s.set_presence_penalty(-2); }}, {[](Options& s) {
         s.set_presence_penalty(2.01f);
       }}},
  };
}

std::vector<Limit> Lists() {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return {
      {"seed", {[](Options& s) { s.set_seed(~uint64_t{0}); }}, {}},
      {"max_tokens",
       {[](Options& s) { s.set_max_tokens(INT32_MAX); }},
       {[](Options& s) { s.set_max_tokens(0); }, [](Options& s) { s.set_max_tokens(-1); }}},
      {"min_tokens",
       {[](Options& s) { s.set_min_tokens(INT32_MAX); }},
       {[](Options& s) { s.set_min_tokens(-1); },
        [](Options& s) {
          s.set_max_tokens(3);
          s.set_min_tokens(4);
        }}},
      {"stop",
       {[](Options& s) { Fill(s.mutable_stop(), std::string(256, 'x'), 16); }},
       {[](Options& s) { Fill(s.mutable_stop(), "x", 17); },
        [](Options& s) { s.add_stop(std::string(257, 'x')); }}},
      {"stop_token_ids",
       {[](Options& s) { Fill(s.mutable_stop_token_ids(), 1, 128); }},
       {[](Options& s) { Fill(s.mutable_stop_token_ids(), 1, 129); },
        [](Options& s) { s.add_stop_token_ids(-1); }}},
      {"logprobs",
       {[](Options& s) { s.set_logprobs(0); }, [](Options& s) { s.set_logprobs(20); }},
       {[](Options& s) { s.set_logprobs(-1); }, [](Options& s) { s.set_logprobs(21); }}},
      {"prompt_logprobs",
       {[](Options& s) { s.set_prompt_logprobs(0); },
        [](Options& s) { s.set_prompt_logprobs(20); }},
       {[](Options& s) { s.set_prompt_logprobs(-1); },
        [](Options& s) { s.set_prompt_logprobs(21); }}},
      {"logit_bias",
       {[](Options& s) {
         for (int i = 0; i < 300; ++i) (*s.mutable_logit_bias())[i] = i % 2 == 0 ? 100 : -100;
       }},
       {[](Options& s) {
          for (int i = 0; i < 301; ++i) (*s.mutable_logit_bias())[i] = 1;
        },
        [](Options& s) { (*s.mutable_logit_bias())[1] = 100.5f; },
        [](Options& s) { (*s.mutable_logit_bias())[1] = kNaN; },
        [](Options& s) { (*s.mutable_logit_bias())[-1] = 1; }}},
      {"allowed_token_ids",
       {[](Options& s) { Fill(s.mutable_allowed_token_ids(), 1, 4096); }},
       {[](Options& s) { Fill(s.mutable_allowed_token_ids(), 1, 4097); },
        [](Options& s) { s.add_allowed_token_ids(-1); }}},
      {"bad_words",
       {[](Options& s) { Fill(s.mutable_bad_words(), std::string(256, 'x'), 64); }},
       {[](Options& s) { Fill(s.mutable_bad_words(), "x", 65); },
        [](Options& s) { s.add_bad_words(std::string(257, 'x')); },
        [](Options& s) { s.add_bad_words(""); }}},
  };
}

TEST(GrpcSampling, AtTheLimitServedAndBeyondItRefusedByName) {
  std::vector<Limit> limits = Numbers();
  for (Limit& limit : Lists()) limits.push_back(std::move(limit));
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.field);
    for (const bool chat : {false, true}) {
      const auto read = [chat](const Set& set) {
        GenerateRequest out;
        if (chat) {
          v1::ChatRequest in;
          in.add_messages()->set_role("user");
          set(*in.mutable_sampling());
          return FromProto(in, out);
        }
        v1::GenerateRequest in;
        in.set_text("x");
        set(*in.mutable_sampling());
        return FromProto(in, out);
      };
      for (const Set& set : limit.served) {
        const auto problem = read(set);
        EXPECT_FALSE(problem) << (problem ? problem->message : "");
      }
      for (const Set& set : limit.refused) {
        const auto problem = read(set);
        ASSERT_TRUE(problem);
        EXPECT_EQ(problem->param, limit.field);
        EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
      }
    }
  }
}

// What no limit above has shown to arrive.
TEST(GrpcSampling, BeamsAndSwitchesAreHandedOn) {
  v1::GenerateRequest in;
  in.set_text("x");
  Options& sampling = *in.mutable_sampling();
  sampling.set_n(4);
  sampling.set_use_beam_search(true);
  sampling.set_length_penalty(-2.5f);
  sampling.set_early_stopping(v1::NEVER);
  sampling.set_include_stop_str_in_output(true);
  sampling.set_ignore_eos(true);
  sampling.set_skip_special_tokens(false);
  GenerateRequest out;
  ASSERT_FALSE(FromProto(in, out));
  EXPECT_EQ(out.sampling.n, 4);
  EXPECT_TRUE(out.sampling.use_beam_search);
  EXPECT_EQ(out.sampling.length_penalty, -2.5f);
  EXPECT_EQ(out.sampling.early_stopping, EarlyStopping::kNever);
  EXPECT_TRUE(out.sampling.include_stop_str_in_output);
  EXPECT_TRUE(out.sampling.ignore_eos);
  EXPECT_FALSE(out.sampling.skip_special_tokens);
  sampling.set_early_stopping(static_cast<v1::EarlyStopping>(3));
  const auto problem = FromProto(in, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "early_stopping");
}

TEST(GrpcSampling, EchoAndTruncation) {
  v1::GenerateRequest in;
  in.set_text("x");
  in.set_echo(true);
  in.mutable_sampling()->set_max_tokens(0);
  in.mutable_sampling()->set_logprobs(3);
  GenerateRequest out;
  ASSERT_FALSE(FromProto(in, out));
  EXPECT_TRUE(out.echo);
  EXPECT_EQ(out.sampling.prompt_logprobs, 3);
  v1::ChatRequest chat;
  chat.add_messages()->set_role("user");
  for (const int32_t good : {-1, 1, INT32_MAX}) {
    chat.set_truncate_prompt_tokens(good);
    out = {};
    ASSERT_FALSE(FromProto(chat, out));
    EXPECT_EQ(out.truncate_prompt_tokens, good);
  }
  for (const int32_t bad : {-2, 0, INT32_MIN}) {
    chat.set_truncate_prompt_tokens(bad);
    const auto problem = FromProto(chat, out);
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->param, "truncate_prompt_tokens");
  }
}

TEST(GrpcSampling, PromptTokensKeepTheirPlaces) {
  std::vector<TokenLogprob> tokens(2);
  tokens[0].id = 4;
  tokens[0].unscored = true;
  tokens[1].id = 5;
  tokens[1].logprob = -1.5f;
  tokens[1].rank = 7;
  tokens[1].top.resize(2);
  v1::PromptPart part;
  ToProto(tokens, 512, part);
  EXPECT_EQ(part.first_position(), 512u);
  ASSERT_EQ(part.logprobs_size(), 2);
  EXPECT_TRUE(part.logprobs(0).unscored());
  EXPECT_FALSE(part.logprobs(1).unscored());
  EXPECT_EQ(part.logprobs(1).rank(), 7u);
  EXPECT_EQ(part.logprobs(1).logprob(), -1.5f);
  EXPECT_EQ(part.logprobs(1).top_size(), 2);
}

}  // namespace
}  // namespace quire
