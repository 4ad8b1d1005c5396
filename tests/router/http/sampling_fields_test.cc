// Sampling over HTTP: every field at its limit and just beyond it, and the shapes in which the
// prompt's side of an answer comes.
#include <gtest/gtest.h>

#include <set>

#include "common/json/json.h"
#include "router/http/api_request.h"
#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

std::string Repeated(const std::string& piece, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i > 0 ? "," : "") + piece;
  return list;
}

std::string Biases(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  return "{" + list + "}";
}

struct Limit {
  std::string field;
  std::vector<std::string> served;   // values, as JSON
  std::vector<std::string> refused;  // values beyond
};

std::vector<Limit> Limits() {
  const auto list = [](const std::string& piece, int count) {
    return "[" + Repeated(piece, count) + "]";
  };
  const auto text = [](int bytes) { return "\"" + std::string(bytes, 'x') + "\""; };
  return {
      {"temperature", {"0", "100"}, {"-0.001", "100.001", "1e38", "1e39", "\"1\""}},
      {"top_p", {"1e-30", "1"}, {"0", "-1", "1.0001"}},
      {"top_k", {"-1", "0", "2147483647"}, {"-2", "2147483648", "1.5"}},
      {"min_p", {"0", "1"}, {"-0.001", "1.001"}},
      {"typical_p", {"1e-30", "1"}, {"0", "1.001"}},
      {"repetition_penalty", {"0.001", "10"}, {"0", "-1", "10.001"}},
      {"frequency_penalty", {"-2", "2"}, {"-2.001", "2.001"}},
      {"presence_penalty", {"-2", "2"}, {"-2.001", "2.001"}},
      {"length_penalty", {"-10", "10"}, {"-10.001", "10.001", "1e38"}},
      {"n", {"1", "128"}, {"0", "-1", "129", "2147483647", "2147483648", "1.5"}},
      {"priority", {"-2147483648", "2147483647"}, {"-2147483649", "2147483648", "1.5"}},
      {"seed", {"0", "18446744073709551615", "-1"}, {"18446744073709551616", "1.5", "\"7\""}},
      {"max_tokens", {"1", "2147483647"}, {"0", "-1", "2147483648"}},
      {"min_tokens", {"0", "2147483647"}, {"-1", "2147483648"}},
      {"stop", {list("\"x\"", 16), text(256), "null"}, {list("\"x\"", 17), text(257), "[\"\"]"}},
      {"stop_token_ids", {list("1", 128)}, {list("1", 129), "[-1]", "[2147483648]"}},
      {"logprobs", {"0", "20"}, {"-1", "21"}},
      {"prompt_logprobs", {"0", "20"}, {"-1", "21"}},
      {"logit_bias",
       {Biases(300), R"({"0":-100,"1":100})"},
       {Biases(301), R"({"0":100.5})", R"({"-1":0})", R"({"0":"x"})"}},
      {"allowed_token_ids", {list("1", 4096)}, {list("1", 4097), "[-1]"}},
      {"bad_words", {list("\"x\"", 64), "[" + text(256) + "]"}, {list("\"x\"", 65), "[\"\"]"}},
      {"truncate_prompt_tokens", {"-1", "1", "2147483647"}, {"-2", "0", "2147483648"}},
      {"include_stop_str_in_output", {"true", "false"}, {"1"}},
      {"ignore_eos", {"true", "false"}, {"\"yes\""}},
      {"skip_special_tokens", {"true", "false"}, {"0"}},
      {"spaces_between_special_tokens", {"true", "false"}, {"2"}},
      {"echo", {"true", "false"}, {"\"no\""}},
  };
}

TEST(SamplingFields, AtTheLimitServedAndBeyondItRefusedByName) {
  for (const Limit& limit : Limits()) {
    const auto parse = [&](const std::string& value) {
      ApiRequest out;
      return ParseApiRequest(ApiKind::kCompletion,
                             R"({"prompt":"x",")" + limit.field + "\":" + value + "}", {}, out);
    };
    for (const std::string& value : limit.served) {
      const auto problem = parse(value);
      EXPECT_FALSE(problem) << limit.field << " " << value.substr(0, 40) << ": "
                            << (problem ? problem->message : "");
    }
    for (const std::string& value : limit.refused) {
      const auto problem = parse(value);
      ASSERT_TRUE(problem) << limit.field << " " << value.substr(0, 40);
      EXPECT_EQ(problem->param, limit.field) << problem->message;
      EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
      EXPECT_LT(problem->message.size(), 400u);
    }
  }
}

TEST(SamplingFields, EachFieldOfTheTableIsHeldToItsLimits) {
  std::set<std::string> tested;
  for (const Limit& limit : Limits()) tested.insert(limit.field);
#define QUIRE_EXPECT_TESTED(name, range, feature) \
  EXPECT_TRUE(tested.contains(#name)) << #name " has no line above: add its ends";
  QUIRE_SAMPLING_NUMBERS(QUIRE_EXPECT_TESTED)
  QUIRE_SAMPLING_LISTS(QUIRE_EXPECT_TESTED)
#undef QUIRE_EXPECT_TESTED
}

TEST(SamplingFields, NoOutputsAreServedWithSomethingOfThePromptOnly) {
  const auto parse = [](ApiKind kind, const std::string& fields) {
    ApiRequest out;
    const std::string prompt = kind == ApiKind::kChat
                                   ? R"("messages":[{"role":"user","content":"x"}])"
                                   : R"("prompt":"x")";
    return ParseApiRequest(kind, "{" + prompt + "," + fields + "}", {}, out);
  };
  EXPECT_FALSE(parse(ApiKind::kCompletion, R"("max_tokens":0,"echo":true)"));
  EXPECT_FALSE(parse(ApiKind::kCompletion, R"("max_tokens":0,"prompt_logprobs":0)"));
  EXPECT_FALSE(parse(ApiKind::kChat, R"("max_tokens":0,"prompt_logprobs":2)"));
  EXPECT_TRUE(parse(ApiKind::kCompletion, R"("max_tokens":0,"echo":false)"));
  EXPECT_TRUE(parse(ApiKind::kCompletion, R"("max_tokens":0,"logprobs":2)"));
  EXPECT_TRUE(parse(ApiKind::kCompletion, R"("max_tokens":0,"echo":true,"min_tokens":1)"));
}

TEST(SamplingFields, AnEchoAsksForThePromptsLogprobs) {
  const auto parse = [](const std::string& fields) {
    ApiRequest out;
    EXPECT_FALSE(
        ParseApiRequest(ApiKind::kCompletion, R"({"prompt":"x",)" + fields + "}", {}, out));
    return out;
  };
  EXPECT_EQ(parse(R"("echo":true,"logprobs":3)").requests[0].sampling.prompt_logprobs, 3);
  EXPECT_EQ(parse(R"("echo":true,"logprobs":3)").prompt_logprobs, std::nullopt);
  EXPECT_EQ(parse(R"("echo":true)").requests[0].sampling.prompt_logprobs, std::nullopt);
  EXPECT_EQ(parse(R"("logprobs":3)").requests[0].sampling.prompt_logprobs, std::nullopt);
}

TEST(SamplingFields, CompletionLogprobsHoldTheTokenItself) {
  EdgeHarness edge;
  const RawResponse r =
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x","logprobs":1,"max_tokens":2})"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_NE(r.body.find(R"("logprobs":{"tokens":["tok0"," tok1"],"token_logprobs":[-0.5,-0.5],)"
                        R"("top_logprobs":[{"alt":-1.5,"tok0":-0.5},{"alt":-1.5," tok1":-0.5}],)"
                        R"("text_offset":[0,4]})"),
            std::string::npos)
      << r.body;
}

TEST(SamplingFields, EchoStandsBeforeTheAnswer) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(edge.Post(
      "/v1/completions", R"({"prompt":"x","echo":true,"logprobs":1,"max_tokens":1,"n":2})"));
  ASSERT_EQ(r.status, 200) << r.body;
  const std::string choice =
      R"("text":"p0 p1 p2tok0","logprobs":{"tokens":["p0"," p1"," p2","tok0"],)"
      R"("token_logprobs":[null,-0.25,-0.5,-0.5],"top_logprobs":[null,{"t0":-0.125," p1":-0.25},)"
      R"({"t0":-0.125," p2":-0.5},{"alt":-1.5,"tok0":-0.5}],"text_offset":[0,2,5,8]},)"
      R"("finish_reason":"length","stop_reason":null)";
  EXPECT_NE(r.body.find(R"({"index":0,)" + choice), std::string::npos) << r.body;
  EXPECT_NE(r.body.find(R"({"index":1,)" + choice), std::string::npos) << r.body;
  EXPECT_EQ(r.body.find("prompt_logprobs"), std::string::npos);
}

TEST(SamplingFields, EchoStreamsAsTheFirstChunkOfEachChoice) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(
      edge.Post("/v1/completions",
                R"({"prompt":"x","echo":true,"logprobs":0,"max_tokens":1,"stream":true})"));
  ASSERT_EQ(r.status, 200);
  const size_t echo = r.body.find(
      R"({"index":0,"text":"p0 p1 p2","logprobs":{"tokens":["p0"," p1"," p2"],)"
      R"("token_logprobs":[null,-0.25,-0.5],"top_logprobs":[null,{" p1":-0.25},{" p2":-0.5}],)"
      R"("text_offset":[0,2,5]},"finish_reason":null})");
  const size_t first = r.body.find(R"({"index":0,"text":"tok0")");
  ASSERT_NE(echo, std::string::npos) << r.body;
  ASSERT_NE(first, std::string::npos);
  EXPECT_LT(echo, first);
  EXPECT_NE(r.body.find(R"("text_offset":[8])"), std::string::npos) << r.body;
}

TEST(SamplingFields, AnEchoAloneHasAnEnd) {
  EdgeHarness edge;
  const RawResponse whole =
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x","echo":true,"max_tokens":0})"));
  EXPECT_NE(whole.body.find(R"("text":"p0 p1 p2","logprobs":null,"finish_reason":"length")"),
            std::string::npos)
      << whole.body;
  const RawResponse stream = edge.Ask(
      edge.Post("/v1/completions", R"({"prompt":"x","echo":true,"max_tokens":0,"stream":true})"));
  EXPECT_NE(stream.body.find(R"("text":"p0 p1 p2")"), std::string::npos) << stream.body;
  EXPECT_NE(stream.body.find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_NE(stream.body.find("[DONE]"), std::string::npos);
}

constexpr char kPromptLogprobs[] =
    R"("prompt_logprobs":[null,{"2":{"logprob":-0.25,"rank":2,"decoded_token":" p1"},)"
    R"("50":{"logprob":-0.125,"rank":1,"decoded_token":"t0"}},)"
    R"({"3":{"logprob":-0.5,"rank":4,"decoded_token":" p2"},)"
    R"("50":{"logprob":-0.125,"rank":1,"decoded_token":"t0"}}])";

TEST(SamplingFields, PromptLogprobsByIdAsVllmShowsThem) {
  EdgeHarness edge;
  for (const bool stream : {false, true}) {
    const std::string tail = std::string(R"("prompt_logprobs":1,"max_tokens":1,"stream":)") +
                             (stream ? "true}" : "false}");
    const RawResponse text = edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x",)" + tail));
    const size_t in_choice = text.body.find(kPromptLogprobs);
    ASSERT_NE(in_choice, std::string::npos) << text.body;
    EXPECT_EQ(text.body.find(kPromptLogprobs, in_choice + 1), std::string::npos);
    EXPECT_EQ(text.body[in_choice + sizeof(kPromptLogprobs) - 1], '}');  // the choice's end
    const RawResponse chat = edge.Ask(edge.Post(
        "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],)" + tail));
    const size_t beside = chat.body.find(std::string(stream ? "]," : ",") + kPromptLogprobs);
    ASSERT_NE(beside, std::string::npos) << chat.body;
    EXPECT_EQ(chat.body.find(kPromptLogprobs, beside + 4), std::string::npos);
  }
}

TEST(SamplingFields, MorePromptLogprobsThanAnAnswerHoldsAreRefused) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.services.limits.max_prompt_logprobs = 20; });
  const std::string body = R"("prompt_logprobs":2,"max_tokens":1})";  // 7 for each prompt
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", R"({"prompt":["a","b"],)" + body)).status, 200);
  const RawResponse r =
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":["a","b","c"],)" + body));
  EXPECT_EQ(r.status, 400);
  EXPECT_NE(r.body.find(R"("param":"prompt_logprobs")"), std::string::npos) << r.body;
  EXPECT_EQ(edge.Ask(edge.Get("/livez")).status, 200);
}

}  // namespace
}  // namespace quire
