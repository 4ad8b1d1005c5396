// The lines of a stream of Ollama's API, and the one object that says the same.
#include "router/ollama/answer.h"
#include "tests/router/support/made_deltas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace quire::ollama {
namespace {

// Asked at 1 s, a second of loading, the first output at 2.5 s, one output each millisecond.
void Play(Answer& answer, const std::vector<Delta>& deltas, const std::string& reason,
          std::string* out) {
  int64_t now = 1'000'000;
  const auto at = [&](int64_t passed) { answer.At(now += passed); };
  at(0);
  answer.Name("r1", 1'700'000'000);
  at(1'000'000);
  answer.Wait();
  at(500'000);
  answer.Begin({}, out);
  for (const Delta& delta : deltas) {
    at(1000);
    answer.Add(delta, out);
  }
  at(0);
  answer.End(Ended(reason));
  answer.Finish({5, 9, 3, 2}, out);
}
std::string Stream(Kind kind, const std::vector<Delta>& deltas,
                   const std::string& reason = "stop") {
  Answer answer(kind, "demo", std::nullopt);
  std::string out;
  Play(answer, deltas, reason, &out);
  return out;
}
std::string Whole(Kind kind, const std::vector<Delta>& deltas, const std::string& reason = "stop") {
  Answer answer(kind, "demo", std::nullopt);
  Play(answer, deltas, reason, nullptr);
  return answer.Whole();
}

constexpr char kAt[] = R"({"model":"demo","created_at":"2023-11-14T22:13:21.50)";

std::string Counts(int deltas) {
  const std::string eval = std::to_string(deltas * 1'000'000);
  return R"("total_duration":)" + std::to_string(1'500'000'000 + deltas * 1'000'000) +
         R"(,"load_duration":1000000000,"prompt_eval_count":5,"prompt_eval_duration":500000000,)" +
         R"("eval_count":9,"eval_duration":)" + eval + "}";
}

TEST(OllamaAnswer, AGenerationIsLinesAndALastOneWithCounts) {
  EXPECT_EQ(Stream(Kind::kGenerate, {Text("On"), Text("ce")}),
            std::string(kAt) + R"(1000Z","response":"On","done":false})" + "\n" + kAt +
                R"(2000Z","response":"ce","done":false})" + "\n" + kAt +
                R"(2000Z","response":"","done":true,"done_reason":"stop",)" + Counts(2) + "\n");
  EXPECT_EQ(Whole(Kind::kGenerate, {Text("On"), Text("ce")}, "length"),
            std::string(kAt) + R"(2000Z","response":"Once","done":true,"done_reason":"length",)" +
                Counts(2));
}

// Models write them over several lines, and a stream has a line for each piece.
TEST(OllamaAnswer, ArgumentsAreOnOneLine) {
  const std::vector<Delta> deltas = {
      Call(0, "c", "read", "{\n  \"a\": \"x\\ny\",\r\n  \"b\": 1\n}")};
  const std::string lines = Stream(Kind::kChat, deltas, "tool_calls");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  EXPECT_NE(lines.find("{   \"a\": \"x\\ny\",    \"b\": 1 }"), std::string::npos) << lines;
}

TEST(OllamaAnswer, AChatHasThoughtsTextAndWholeCalls) {
  const std::vector<Delta> deltas = {
      Thought("I see"),           Text("Let me look"),    Call(0, "call_a", "read", ""),
      Call(0, "", "", R"({"a")"), Call(0, "", "", ":1}"), Call(1, "call_b", "stop", "now")};
  const std::string calls[] = {
      R"({"id":"call_a","function":{"index":0,"name":"read","arguments":{"a":1}}})",
      R"({"id":"call_b","function":{"index":1,"name":"stop","arguments":{"arguments":"now"}}})"};
  const auto line = [](int ms, const std::string& members) {
    return std::string(kAt) + std::to_string(ms) + R"(000Z","message":{"role":"assistant",)" +
           members + "}";
  };
  EXPECT_EQ(Stream(Kind::kChat, deltas, "tool_calls"),
            line(1, R"("content":"","thinking":"I see")") + ",\"done\":false}\n" +
                line(2, R"("content":"Let me look")") + ",\"done\":false}\n" +
                line(6, R"("content":"","tool_calls":[)" + calls[0] + "]") + ",\"done\":false}\n" +
                line(6, R"("content":"","tool_calls":[)" + calls[1] + "]") + ",\"done\":false}\n" +
                line(6, R"("content":"")") + R"(,"done":true,"done_reason":"stop",)" + Counts(6) +
                "\n");
  EXPECT_EQ(Whole(Kind::kChat, deltas, "tool_calls"),
            line(6, R"("content":"Let me look","thinking":"I see","tool_calls":[)" + calls[0] +
                        "," + calls[1] + "]") +
                R"(,"done":true,"done_reason":"stop",)" + Counts(6));
}

TEST(OllamaAnswer, DeltasThatSayNothingWriteNothing) {
  Delta quiet;
  quiet.ids = {1};
  const std::string out = Stream(Kind::kGenerate, {quiet, quiet});
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
}

TEST(OllamaAnswer, LogprobsStandBesideTheirText) {
  Delta delta = Text("a");
  delta.logprobs = {{1, "a", "a", -0.5f, {{2, "b", "b", -1.5f, {}}, {3, "c", "c", -2.0f, {}}}}};
  for (const bool stream : {true, false}) {
    Answer answer(Kind::kGenerate, "demo", 1);
    std::string out;
    Play(answer, {delta}, "stop", stream ? &out : nullptr);
    if (!stream) out = answer.Whole();
    EXPECT_NE(out.find(R"("logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
                       R"({"token":"b","logprob":-1.5,"bytes":[98]}]}])"),
              std::string::npos)
        << out;
  }
  Answer without(Kind::kGenerate, "demo", std::nullopt);
  Play(without, {delta}, "stop", nullptr);
  EXPECT_EQ(without.Whole().find("logprobs"), std::string::npos);
}

TEST(OllamaAnswer, WhatLoadsWithoutAPromptSpendsItsTimeOnThat) {
  Answer answer(Kind::kChat, "demo", std::nullopt);
  answer.At(1'000'000);
  answer.Name("", 1'700'000'000);
  answer.End(Ended("load"));
  answer.At(3'000'000);
  answer.Finish({}, nullptr);
  EXPECT_EQ(answer.Whole(),
            R"({"model":"demo","created_at":"2023-11-14T22:13:22.000000Z",)"
            R"("message":{"role":"assistant","content":""},"done":true,"done_reason":"load",)"
            R"("total_duration":2000000000,"load_duration":2000000000,"prompt_eval_count":0,)"
            R"("prompt_eval_duration":0,"eval_count":0,"eval_duration":0})");
}

TEST(OllamaAnswer, AFailureIsTheLastLine) {
  Answer answer(Kind::kChat, "demo", std::nullopt);
  std::string out;
  answer.Fail({ApiCode::kUnavailable, "the worker \"w\" went away", "", 0}, out);
  EXPECT_EQ(out, "{\"error\":\"the worker \\\"w\\\" went away\"}\n");
}

TEST(OllamaAnswer, ASilenceIsBrokenByAPieceWithoutText) {
  Answer answer(Kind::kGenerate, "demo", std::nullopt);
  answer.Name("", 1'700'000'000);
  EXPECT_EQ(answer.KeepAlive(),
            "{\"model\":\"demo\",\"created_at\":\"2023-11-14T22:13:20.000000Z\",\"response\":\"\","
            "\"done\":false}\n");
}

TEST(OllamaAnswer, WhatAWholeAnswerKeepsIsCountedAndAStreamKeepsNothing) {
  const std::string large(10'000, 'x');
  for (const bool stream : {true, false}) {
    Answer answer(Kind::kChat, "demo", std::nullopt);
    std::string out;
    Play(answer, {Text(large), Thought(large), Call(0, "c", "f", large)}, "stop",
         stream ? &out : nullptr);
    if (stream) {
      EXPECT_EQ(answer.held_bytes(), 0u);
    } else {
      EXPECT_GE(answer.held_bytes(), answer.Whole().size());
    }
  }
}

}  // namespace
}  // namespace quire::ollama
