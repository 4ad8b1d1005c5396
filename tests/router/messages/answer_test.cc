// The events of /v1/messages, in the order and with the members that Anthropic's clients read.
#include "router/messages/answer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "router/chat/conversation.h"
#include "router/messages/errors.h"
#include "tests/router/support/made_deltas.h"

namespace quire::messages {
namespace {

Started Begun() {
  Started started;
  started.model = "demo";
  started.prompt_ids = {1, 2, 3, 4, 5};
  return started;
}

constexpr Usage kUsage{5, 9, 3, 2};

std::string Stream(const Asked& asked, const std::vector<Delta>& deltas, const ChoiceEnd& end,
                   const Usage& usage = kUsage) {
  Answer answer(asked);
  std::string out;
  answer.Name("r1", 7);
  answer.Begin(Begun(), &out);
  for (const Delta& delta : deltas) answer.Add(delta, &out);
  answer.End(end);
  answer.Finish(usage, &out);
  return out;
}

std::string Whole(const Asked& asked, const std::vector<Delta>& deltas, const ChoiceEnd& end,
                  const Usage& usage = kUsage) {
  Answer answer(asked);
  answer.Name("r1", 7);
  answer.Begin(Begun(), nullptr);
  for (const Delta& delta : deltas) answer.Add(delta, nullptr);
  answer.End(end);
  answer.Finish(usage, nullptr);
  return answer.Whole();
}

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/router/messages/golden/" + name);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Delta> AllKinds() {
  return {Thought("I "),
          Thought("see"),
          Text("Let me"),
          Text(" look"),
          Call(0, "call_a", "read", ""),
          Call(0, "", "", R"({"path")"),
          Call(0, "", "", R"(:"a"})"),
          Call(1, "call_b", "stop", "")};
}

TEST(MessagesAnswer, AStreamHasEveryEventInOrder) {
  EXPECT_EQ(Stream({.max_tokens = 100}, AllKinds(), Ended("tool_calls")), Golden("stream.txt"));
}

TEST(MessagesAnswer, TheWholeSaysWhatTheStreamSays) {
  EXPECT_EQ(Whole({.max_tokens = 100}, AllKinds(), Ended("tool_calls")),
            R"({"id":"msg_r1","type":"message","role":"assistant","model":"demo","content":[)"
            R"({"type":"thinking","thinking":"I see","signature":"quire"},)"
            R"({"type":"text","text":"Let me look"},)"
            R"({"type":"tool_use","id":"call_a","name":"read","input":{"path":"a"}},)"
            R"({"type":"tool_use","id":"call_b","name":"stop","input":{}}],)"
            R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":2,)"
            R"("cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":9}})");
}

TEST(MessagesAnswer, DeltasThatSayMoreAtOnceGiveTheSameBlocks) {
  Delta all = Thought("I see");
  all.text = "Let me look";
  all.tool_calls = {{0, "call_a", "read", R"({"path":"a"})"}, {1, "call_b", "stop", ""}};
  EXPECT_EQ(Whole({}, {all}, Ended("tool_calls")), Whole({}, AllKinds(), Ended("tool_calls")));
}

TEST(MessagesAnswer, OmittedThoughtsTravelInTheSignature) {
  const std::string packed = PackThought("I see");
  const std::string stream =
      Stream({.omit_thoughts = true}, {Thought("I "), Thought("see"), Text("x")}, Ended("stop"));
  EXPECT_EQ(stream.find("thinking_delta"), std::string::npos);
  EXPECT_NE(stream.find(R"({"type":"signature_delta","signature":")" + packed + "\"}"),
            std::string::npos)
      << stream;
  const std::string whole =
      Whole({.omit_thoughts = true}, {Thought("I "), Thought("see"), Text("x")}, Ended("stop"));
  EXPECT_NE(whole.find(R"({"type":"thinking","thinking":"","signature":")" + packed + "\"}"),
            std::string::npos)
      << whole;
}

TEST(MessagesAnswer, StopReasons) {
  const auto reason = [](const ChoiceEnd& end, const std::vector<Delta>& deltas,
                         uint32_t max_tokens) {
    const std::string whole = Whole({.max_tokens = max_tokens}, deltas, end);
    const size_t at = whole.find("\"stop_reason\":");
    return whole.substr(at, whole.find(",\"usage\"") - at);
  };
  EXPECT_EQ(reason(Ended("stop"), {Text("x")}, 9),
            R"("stop_reason":"end_turn","stop_sequence":null)");
  EXPECT_EQ(reason(Ended("length"), {Text("x")}, 9),
            R"("stop_reason":"max_tokens","stop_sequence":null)");
  EXPECT_EQ(reason(Ended("length"), {Text("x")}, 10),
            R"("stop_reason":"model_context_window_exceeded","stop_sequence":null)");
  // A forced call ends in "stop" in OpenAI's words.
  EXPECT_EQ(reason(Ended("stop"), {Call(0, "c", "f", "{}")}, 9),
            R"("stop_reason":"tool_use","stop_sequence":null)");
  ChoiceEnd stopped = Ended("stop");
  stopped.stop_string = "\nEND";
  EXPECT_EQ(reason(stopped, {Call(0, "c", "f", "{")}, 9),
            R"("stop_reason":"stop_sequence","stop_sequence":"\nEND")");
}

TEST(MessagesAnswer, ArgumentsThatAreNoObjectAreKept) {
  const std::string whole = Whole({}, {Call(0, "c", "f", "{\"a\": 1")}, Ended("length"));
  EXPECT_NE(whole.find(R"("input":{"arguments":"{\"a\": 1"}})"), std::string::npos) << whole;
}

TEST(MessagesAnswer, AnErrorEndsTheStreamInAnthropicsShape) {
  Answer answer({});
  std::string out;
  answer.Fail({ApiCode::kUnavailable, "no worker", "", 0}, out);
  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
            "\"message\":\"no worker\"}}\n\n");
}

TEST(MessagesAnswer, AStreamHoldsLittleAndAWholeAnswerWhatItHas) {
  Answer stream({}), whole({}), omitted({.omit_thoughts = true});
  std::string out;
  for (int i = 0; i < 1000; ++i) {
    stream.Add(Thought("0123456789"), &out);
    whole.Add(Thought("0123456789"), nullptr);
    omitted.Add(Thought("0123456789"), &out);
  }
  EXPECT_LT(stream.held_bytes(), 1000u);
  EXPECT_GE(whole.held_bytes(), 20'000u);
  EXPECT_GE(omitted.held_bytes(), 20'000u);
}

TEST(MessagesErrors, EveryStatusHasItsType) {
  const struct {
    int status;
    const char* type;
  } cases[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
               {403, "permission_error"},      {404, "not_found_error"},
               {413, "request_too_large"},     {415, "invalid_request_error"},
               {429, "rate_limit_error"},      {500, "api_error"},
               {504, "timeout_error"},         {529, "overloaded_error"}};
  for (const auto& one : cases) {
    EXPECT_EQ(ErrorJson(one.status, "m", "r"), R"({"type":"error","error":{"type":")" +
                                                   std::string(one.type) +
                                                   R"(","message":"m"},"request_id":"r"})");
  }
  EXPECT_EQ(StatusOf(503), 529);
  EXPECT_EQ(StatusOf(ApiCode::kUnavailable), 529);
  EXPECT_TRUE(IsPath("/v1/messages") && IsPath("/v1/messages/count_tokens"));
  EXPECT_FALSE(IsPath("/v1/messagesx") || IsPath("/v1/models"));
}

}  // namespace
}  // namespace quire::messages
