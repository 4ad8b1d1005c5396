// Messages of a chat out of items and blocks.
#include "router/chat/conversation.h"

#include <gtest/gtest.h>

#include <string>

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
