// The events of /v1/responses, in the order and with the members that OpenAI's clients read.
#include "router/responses/answer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "common/json/json.h"
#include "router/chat/conversation.h"
#include "router/core/result.h"

namespace quire::responses {
namespace {

Started Begun() {
  Started started;
  started.model = "demo";
  started.created = 1700000001;
  return started;
}

Delta Text(std::string text) {
  Delta delta;
  delta.text = std::move(text);
  return delta;
}
Delta Thought(std::string text) {
  Delta delta;
  delta.reasoning = std::move(text);
  return delta;
}
Delta Call(uint32_t index, std::string id, std::string name, std::string arguments) {
  Delta delta;
  delta.tool_calls.push_back({index, std::move(id), std::move(name), std::move(arguments)});
  return delta;
}

Asked AskedOf(bool pack = false) {
  Asked asked;
  asked.echo = ",\"tools\":[]";
  asked.names["web__get"] = {"get", "web", false};
  asked.names["patch"] = {"patch", "", true};
  asked.pack_thoughts = pack;
  return asked;
}

constexpr Usage kUsage{5, 9, 3, 2};

std::string Answered(const std::vector<Delta>& deltas, const std::string& reason, bool stream,
                     Asked asked = AskedOf()) {
  Answer answer(std::move(asked));
  std::string events;
  std::string* out = stream ? &events : nullptr;
  answer.Name("r1", 7);
  answer.Begin(Begun(), out);
  for (const Delta& delta : deltas) answer.Add(delta, out);
  ChoiceEnd end;
  end.finish_reason = reason;
  answer.End(end);
  answer.Finish(kUsage, out);
  return stream ? events : answer.Whole();
}

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/router/responses/golden/" + name);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The events with the response left out of those of its life.
std::string WithoutResponses(const std::string& events) {
  return std::regex_replace(events, std::regex("\"response\":\\{.*\\}\\}\\n"), "\"response\":…}\n");
}

std::vector<Delta> AllKinds() {
  return {Thought("I see"),
          Text("Let "),
          Text("me"),
          Call(0, "call_a", "web__get", ""),
          Call(0, "", "", R"({"u":)"),
          Call(0, "", "", "1}"),
          Call(1, "call_b", "patch", R"({"input": "a\nb"})")};
}

TEST(ResponsesAnswer, AStreamHasEveryEventInOrder) {
  EXPECT_EQ(WithoutResponses(Answered(AllKinds(), "tool_calls", true)), Golden("stream.txt"));
}

TEST(ResponsesAnswer, TheWholeIsTheResponseThatTheStreamEndsWith) {
  const std::string whole = Answered(AllKinds(), "tool_calls", false);
  EXPECT_TRUE(Answered(AllKinds(), "tool_calls", true)
                  .ends_with("\"sequence_number\":24,\"response\":" + whole + "}\n\n"));
  EXPECT_TRUE(whole.starts_with(
      R"({"id":"resp_r1","object":"response","created_at":1700000001,"status":"completed",)"
      R"("background":false,"error":null,"incomplete_details":null,"model":"demo","output":[{)"));
  EXPECT_TRUE(
      whole.ends_with(R"(],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":3,)"
                      R"("cache_write_tokens":0},"output_tokens":9,"output_tokens_details":)"
                      R"({"reasoning_tokens":2},"total_tokens":14},"tools":[]})"))
      << whole;
  EXPECT_TRUE(json::Parse(whole).ok());
}

TEST(ResponsesAnswer, DeltasThatSayMoreAtOnceGiveTheSameItems) {
  Delta all = Thought("I see");
  all.text = "Let me";
  all.tool_calls = {{0, "call_a", "web__get", R"({"u":1})"},
                    {1, "call_b", "patch", R"({"input": "a\nb"})"}};
  EXPECT_EQ(Answered({all}, "tool_calls", false), Answered(AllKinds(), "tool_calls", false));
}

TEST(ResponsesAnswer, TextBehindACallIsAnItemOfItsOwn) {
  const std::string whole =
      Answered({Text("a"), Call(0, "c", "f", "{}"), Text("b")}, "stop", false);
  EXPECT_NE(whole.find("\"msg_r1_0\""), std::string::npos);
  EXPECT_NE(whole.find("\"fc_r1_1\""), std::string::npos);
  EXPECT_NE(whole.find("\"msg_r1_2\""), std::string::npos);
}

TEST(ResponsesAnswer, AnAnswerThatIsCutIsIncomplete) {
  const std::string events = Answered({Text("Once")}, "length", true);
  EXPECT_EQ(events.find("event: response.completed"), std::string::npos);
  EXPECT_NE(events.find("event: response.incomplete\n"), std::string::npos);
  EXPECT_NE(events.find(R"("incomplete_details":{"reason":"max_output_tokens"})"),
            std::string::npos);
  EXPECT_NE(events.find(R"("id":"msg_r1_0","status":"incomplete")"), std::string::npos);
}

TEST(ResponsesAnswer, ThoughtsArePackedForThoseWhoAsk) {
  const std::string whole = Answered({Thought("hm"), Text("x")}, "stop", false, AskedOf(true));
  EXPECT_NE(whole.find("\"encrypted_content\":\"" + PackThought("hm") + "\""), std::string::npos)
      << whole;
}

TEST(ResponsesAnswer, LogprobsAreBesideTheirText) {
  Delta delta = Text("a");
  delta.logprobs.push_back({7, "a", "a", -0.5f, {{8, "é", "\xc3\xa9", -1.5f, {}}}});
  const std::string expected =
      R"("logprobs":[{"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[)"
      R"({"token":"é","bytes":[195,169],"logprob":-1.5}]}])";
  const std::string events = Answered({delta}, "stop", true);
  size_t count = 0;
  for (size_t at = events.find(expected); at != std::string::npos;
       at = events.find(expected, at + 1)) {
    ++count;
  }
  EXPECT_EQ(count, 5u) << events;  // delta, text done, part done, item done, response
}

TEST(ResponsesAnswer, ACustomToolsTextIsWhatTheModelWroteWhereItIsNoJson) {
  for (const auto& [arguments, input] : {std::pair("{\"input\":\"x\"}", "x"),
                                         {"{\"patch\":\"x\"}", "x"},
                                         {"{\"input\":7}", nullptr},
                                         {"{\"input\":\"x", nullptr},
                                         {"plain", nullptr},
                                         {"", nullptr}}) {
    EXPECT_EQ(CustomInput(arguments), input == nullptr ? arguments : input);
  }
}

TEST(ResponsesAnswer, AFailureIsTheLastEventWithItsCode) {
  Answer answer(AskedOf());
  std::string out;
  answer.Name("r1", 7);
  answer.Begin(Begun(), &out);
  answer.Add(Text("On"), &out);
  ApiError error{ApiCode::kUnavailable, "no worker", "", 0};
  answer.Fail(error, out);
  const size_t last = out.rfind("event: ");
  EXPECT_TRUE(out.substr(last).starts_with(
      "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":5,"))
      << out;
  EXPECT_NE(out.find(R"("error":{"code":"server_error","message":"no worker"})", last),
            std::string::npos);
  EXPECT_NE(out.find(R"("status":"incomplete","role":"assistant","content":[{"type":"output_text",)"
                     R"("annotations":[],"logprobs":[],"text":"On"}])",
                     last),
            std::string::npos)
      << out;
  EXPECT_EQ(FailureCode({ApiCode::kRateLimited, "", "", 0}), "rate_limit_exceeded");
  error.reason = kContextLengthExceeded;
  EXPECT_EQ(FailureCode(error), "context_length_exceeded");
}

TEST(ResponsesAnswer, AFailureBeforeTheBeginningHasAnIdAndATime) {
  Answer answer(AskedOf());
  std::string out;
  answer.Name("r1", 7);
  answer.Fail({ApiCode::kRateLimited, "full", "", 0}, out);
  EXPECT_TRUE(out.starts_with("event: response.failed\n")) << out;
  EXPECT_NE(out.find(R"("id":"resp_r1","object":"response","created_at":7,"status":"failed")"),
            std::string::npos);
}

TEST(ResponsesAnswer, WhatItHoldsIsCounted) {
  Answer answer(AskedOf());
  const size_t before = answer.held_bytes();
  std::string out;
  answer.Add(Text(std::string(1000, 'x')), &out);
  answer.Add(Call(0, "c", "f", std::string(1000, 'y')), &out);
  EXPECT_GE(answer.held_bytes(), before + 4000);
}

// The first two events of a stream stand beside what they repeat.
TEST(ResponsesAnswer, CountsEachCopyOfWhatItRepeats) {
  Asked asked;
  asked.echo = ",\"tools\":\"" + std::string(100'000, 't') + "\"";
  const size_t echo = asked.echo.size();
  Answer answer(std::move(asked));
  std::string events;
  answer.Name("r1", 7);
  answer.Begin(Begun(), &events);
  EXPECT_GT(events.size(), 2 * echo);
  EXPECT_GE(answer.held_bytes(), echo + events.size() - 4096);
}

}  // namespace
}  // namespace quire::responses
