// Fields and messages of a chat with tools: what templates get, and what is refused by name.
#include "router/chat/tool_fields.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

json::Value Json(std::string_view text) { return json::Parse(text).value(); }

std::string Param(const FieldError& error) { return error ? error->param : ""; }

TEST(ToolFields, ToolsGoToTheTemplateAsTheyCame) {
  std::string tools;
  const std::string given =
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"b":1,"a":2},)"
      R"("strict":true},"x":null}])";
  EXPECT_FALSE(ReadTools(Json(given), "tools", {}, tools));
  EXPECT_EQ(tools, given);
  EXPECT_FALSE(ReadTools(Json("[]"), "tools", {}, tools));
  EXPECT_EQ(tools, "");
  EXPECT_FALSE(ReadFunctions(Json(R"([{"name":"f"},{"name":"g"}])"), "functions", {}, tools));
  EXPECT_EQ(tools, R"([{"type":"function","function":{"name":"f"}},)"
                   R"({"type":"function","function":{"name":"g"}}])");
}

TEST(ToolFields, WhatIsWrongWithAToolIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "tools"},
      {"[1]", "tools[0]"},
      {R"([{"type":"function","function":{"name":"f"}},{"type":"web_search"}])", "tools[1].type"},
      {R"([{"type":"function"}])", "tools[0].function"},
      {R"([{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters"},
      {R"([{"type":"function","function":{"name":"f","strict":1}}])", "tools[0].function.strict"},
  };
  std::string out;
  for (const auto& [tools, field] : cases) {
    EXPECT_EQ(Param(ReadTools(Json(tools), "tools", {}, out)), field) << tools;
  }
  const auto named = [&](size_t bytes) {
    return ReadTools(
        Json(R"([{"type":"function","function":{"name":")" + std::string(bytes, 'n') + R"("}}])"),
        "tools", {}, out);
  };
  EXPECT_FALSE(named(kMaxToolNameBytes));
  EXPECT_TRUE(named(kMaxToolNameBytes + 1));
}

TEST(ToolFields, ChoicesAreWordsOrNames) {
  const std::string tools = R"([{"type":"function","function":{"name":"f"}}])";
  const auto read = [&](std::string_view choice, std::string_view among) {
    ToolUse use;
    FieldError error = ReadToolChoice(Json(choice), "tool_choice", use);
    if (!error) error = CheckToolUse(use, among, "tool_choice");
    return error ? "refused" : std::to_string(static_cast<int>(use.choice)) + use.name;
  };
  EXPECT_EQ(read("\"auto\"", ""), "0");
  EXPECT_EQ(read("\"none\"", ""), "1");
  EXPECT_EQ(read("\"required\"", tools), "2");
  EXPECT_EQ(read("\"required\"", ""), "refused");
  EXPECT_EQ(read("\"any\"", tools), "refused");
  EXPECT_EQ(read(R"({"type":"function","function":{"name":"f"}})", tools), "3f");
  EXPECT_EQ(read(R"({"type":"function","name":"f"})", tools), "3f");
  EXPECT_EQ(read(R"({"type":"function","function":{"name":"g"}})", tools), "refused");
  EXPECT_EQ(read(R"({"type":"function"})", tools), "refused");
  ToolUse old;
  EXPECT_FALSE(ReadFunctionCall(Json(R"({"name":"f"})"), "function_call", old));
  EXPECT_EQ(old.name, "f");
  EXPECT_TRUE(ReadFunctionCall(Json("\"required\""), "function_call", old));
}

TEST(ToolFields, OlderMessagesBecomeNewerOnes) {
  const auto read = [](std::string_view message) {
    json::Value value = Json(message);
    RequestLimits limits;
    const FieldError error = ReadCalls(value.get_object(), "messages[0]", limits);
    return error ? error->param : json::Serialize(value);
  };
  EXPECT_EQ(read(R"({"role":"assistant","function_call":{"name":"f","arguments":"{\"a\":1}"}})"),
            R"({"role":"assistant","tool_calls":[{"type":"function",)"
            R"("function":{"name":"f","arguments":{"a":1}}}]})");
  EXPECT_EQ(read(R"({"role":"function","name":"f","content":"x"})"),
            R"({"role":"tool","name":"f","content":"x"})");
  EXPECT_EQ(read(R"({"role":"assistant","content":"x","reasoning_content":"t"})"),
            R"({"role":"assistant","content":"x","reasoning_content":"t","reasoning":"t",)"
            R"("thinking":"t"})");
  EXPECT_EQ(read(R"({"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]})"),
            "messages[0].tool_calls[0].function.arguments");
}

TEST(ToolFields, ThinkingBecomesVariablesOfTheTemplate) {
  ChatPrompt chat;
  Thinking silent;
  ApplyThinking(silent, chat);
  EXPECT_EQ(chat.template_kwargs_json, "");
  Thinking none;
  EXPECT_FALSE(ReadEffort(Json("\"none\""), "reasoning_effort", none));
  chat.template_kwargs_json = R"({"enable_thinking":true,"x":1})";
  ApplyThinking(none, chat);
  EXPECT_EQ(chat.template_kwargs_json,
            R"({"enable_thinking":true,"x":1,"thinking":false,"reasoning_effort":"none"})");
  EXPECT_TRUE(ReadEffort(Json("\"much\""), "reasoning_effort", none));
}

TEST(ToolFields, ABudgetIsANumberOfTokensAndAVariable) {
  Thinking thinking;
  EXPECT_FALSE(ReadBudget(Json("2147483647"), "thinking_budget", thinking));
  EXPECT_EQ(thinking.budget, 2147483647u);
  EXPECT_FALSE(ReadBudget(Json("0"), "thinking_budget", thinking));
  EXPECT_EQ(thinking.budget, 0u);
  EXPECT_EQ(thinking.budget_field, "thinking_budget");
  for (const char* bad : {"-1", "2147483648", "1.5", "\"1\"", "true"}) {
    EXPECT_EQ(ReadBudget(Json(bad), "thinking_budget", thinking)->param, "thinking_budget") << bad;
  }
  ChatPrompt chat;
  ApplyThinking(thinking, chat);
  EXPECT_EQ(chat.template_kwargs_json, R"({"thinking_budget":0})");
  EXPECT_TRUE(thinking.budget_firm);
}

TEST(ToolFields, ATemplatesOwnBudgetHolds) {
  for (const auto& [given, budget] :
       {std::pair(R"({"thinking_budget":512})", std::optional<uint32_t>(512)),
        std::pair(R"({"thinking_budget":-1})", std::optional<uint32_t>()),
        std::pair(R"({"thinking_budget":"512"})", std::optional<uint32_t>())}) {
    Thinking thinking;
    ChatPrompt chat;
    chat.template_kwargs_json = given;
    ApplyThinking(thinking, chat);
    EXPECT_EQ(thinking.budget, budget) << given;
    EXPECT_EQ(chat.template_kwargs_json, given);
    EXPECT_EQ(thinking.budget_firm, !budget) << "a template may take it for something of its own";
  }
}

}  // namespace
}  // namespace quire
