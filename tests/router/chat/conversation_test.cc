// Messages of a chat out of items and blocks.
#include "router/chat/conversation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/memory_account.h"
#include "common/metrics/metrics.h"

namespace quire {
namespace {

TEST(Conversation, InstructionsStandInFrontAndTurnsAreJoined) {
  Conversation talk;
  talk.Instruct("a");
  talk.Instruct("b");
  talk.User("u1");
  talk.User("u2");
  talk.Instruct("later");
  talk.Assistant("x");
  talk.Assistant("y");
  talk.User("u3");
  EXPECT_EQ(talk.TakeJson(),
            R"([{"role":"system","content":"a\nb"},{"role":"user","content":"u1\nu2\nlater"},)"
            R"({"role":"assistant","content":"x\ny"},{"role":"user","content":"u3"}])");
}

TEST(Conversation, AnAssistantsTurnHoldsThoughtTextAndCalls) {
  Conversation talk;
  talk.User("go");
  talk.Think("hm");
  talk.Assistant("I look");
  talk.Call("c1", "read", R"({"path":"a"})");
  talk.Call("c2", "read",
            R"("no json)"
            "\"");
  talk.Result("c1", "one\n\"two\"");
  talk.Result("c2", "");
  talk.Result("c9", "of no call");
  talk.Think("so");
  talk.Call("c3", "stop", "{}");
  EXPECT_EQ(
      talk.TakeJson(),
      R"([{"role":"user","content":"go"},)"
      R"({"role":"assistant","content":"I look","reasoning":"hm","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"read","arguments":{"path":"a"}}},)"
      R"({"id":"c2","type":"function","function":{"name":"read","arguments":"no json"}}]},)"
      R"({"role":"tool","content":"one\n\"two\"","tool_call_id":"c1","name":"read"},)"
      R"({"role":"tool","content":"","tool_call_id":"c2","name":"read"},)"
      R"({"role":"tool","content":"of no call","tool_call_id":"c9"},)"
      R"({"role":"assistant","content":"","reasoning":"so","reasoning_content":"so","thinking":"so","tool_calls":[)"
      R"({"id":"c3","type":"function","function":{"name":"stop","arguments":{}}}]}])");
}

TEST(Conversation, ALongerOneBeginsLikeTheShorterOne) {
  const auto begin = [](Conversation& talk) {
    talk.Instruct("rules");
    talk.User("q");
    talk.Call("c", "f", "{}");
    talk.Result("c", "r");
  };
  Conversation shorter, longer;
  begin(shorter);
  begin(longer);
  longer.Assistant("done");
  longer.User("more");
  std::string beginning = shorter.TakeJson();
  beginning.pop_back();
  EXPECT_TRUE(longer.TakeJson().starts_with(beginning + ','));
}

// One call and ever more results, each of which repeats its name.
TEST(Conversation, GrowsToTheLimitAndOneByteMoreIsRefusedAndCounted) {
  constexpr size_t kName = 10'000;
  const auto problem_of = [](const RequestLimits& limits, size_t results) {
    Conversation talk;
    talk.Call("c", std::string(kName, 'n'), "{}");
    FieldError problem;
    for (size_t i = 0; i < results && !problem; ++i) {
      talk.Result("c", "");
      problem = talk.Check("messages", limits);
    }
    return problem;
  };
  Conversation whole;
  whole.Call("c", std::string(kName, 'n'), "{}");
  for (int i = 0; i < 8; ++i) whole.Result("c", "");
  Metrics metrics;
  LimitCounters counters(metrics);
  RequestLimits limits;
  limits.counters = &counters;
  limits.max_prompt_bytes = whole.TakeJson().size() - 2;  // without the brackets
  EXPECT_FALSE(problem_of(limits, 8));
  EXPECT_EQ(counters.prompt_bytes.value(), 0);
  --limits.max_prompt_bytes;
  const FieldError problem = problem_of(limits, 1'000'000);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ApiCode::kTooLarge);
  EXPECT_EQ(problem->param, "messages");
  EXPECT_NE(problem->message.find("--max-prompt-bytes"), std::string::npos) << problem->message;
  EXPECT_EQ(counters.prompt_bytes.value(), 1);
}

TEST(Conversation, WhatItHoldsIsCharged) {
  const auto account = std::make_shared<MemoryAccount>(1u << 20);
  MemoryHold hold(account);
  RequestLimits limits;
  limits.hold = &hold;
  Conversation talk;
  talk.Call("c", std::string(1000, 'n'), "{}");
  FieldError problem;
  size_t results = 0;
  for (; !problem && results < 10'000; ++results) {
    talk.Result("c", "");
    problem = talk.Check("messages", limits);
  }
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ApiCode::kUnavailable);
  EXPECT_LE(account->bytes(), account->limit());
  EXPECT_GT(results, 100u);
  EXPECT_LE(results, 350u) << "its copies count";

  MemoryHold again(std::make_shared<MemoryAccount>(1u << 20));
  limits.hold = &again;
  Conversation paid(1u << 20);
  paid.User(std::string(300'000, 'u'));
  EXPECT_FALSE(paid.Check("messages", limits));
  EXPECT_EQ(again.bytes(), 0u) << "what was charged before is not charged again";
  for (int i = 0; i < 10'000; ++i) paid.Call("call" + std::to_string(i), "f", "{}");
  EXPECT_TRUE(paid.Check("messages", limits)) << "names of calls take memory of their own";
}

TEST(Conversation, NothingIsAnEmptyList) {
  EXPECT_EQ(Conversation().TakeJson(), "[]");
  Conversation rules;
  rules.Instruct("only these");
  EXPECT_EQ(rules.TakeJson(), R"([{"role":"system","content":"only these"}])");
}

TEST(PackThought, EveryLengthComesBackAndOthersTextsDoNot) {
  std::string thought;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(UnpackThought(PackThought(thought)), thought);
    thought += static_cast<char>(37 * i);
  }
  for (const char* other : {"", "quire", "quire1.", "quire1.abc", "quire1.a===", "quire1.%%%%",
                            "quire1.    ", "gAAAAABo", "quire1.ab=="}) {
    EXPECT_LE(UnpackThought(other).size(), 1u) << other;
  }
  EXPECT_EQ(UnpackThought("gAAAAABo"), "");
}

}  // namespace
}  // namespace quire
