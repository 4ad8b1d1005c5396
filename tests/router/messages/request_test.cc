// Bodies of /v1/messages become chats; what is not served is named.
#include "router/messages/request.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/memory_account.h"

namespace quire::messages {
namespace {

std::string Body(const std::string& more) {
  return R"({"model":"demo","max_tokens":16,"messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}

AgentRequest Read(const std::string& body, Purpose purpose = Purpose::kAnswer) {
  AgentRequest out;
  const auto problem = ReadRequest(body, purpose, RequestLimits(), out);
  EXPECT_FALSE(problem) << problem->message << "\n" << body;
  return out;
}

const ChatPrompt& ChatOf(const AgentRequest& request) {
  return std::get<ChatPrompt>(request.generate.prompt);
}

std::string Refused(const std::string& body) {
  AgentRequest out;
  const auto problem = ReadRequest(body, Purpose::kAnswer, RequestLimits(), out);
  EXPECT_TRUE(problem) << body;
  return problem ? problem->message : "";
}

std::string Messages(const std::string& list, const std::string& more = "") {
  return R"({"model":"demo","max_tokens":16,"messages":)" + list +
         (more.empty() ? "" : "," + more) + "}";
}

TEST(MessagesRequest, EveryKindOfBlockBecomesAMessage) {
  const AgentRequest request = Read(Messages(
      R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                                    {"type":"text","text":"b"}]},
          {"role":"system","content":[{"type":"text","text":"note"}]},
          {"role":"assistant","content":[
            {"type":"thinking","thinking":"hm","signature":"any"},
            {"type":"redacted_thinking","data":"xyz"},
            {"type":"text","text":"I look"},
            {"type":"tool_use","id":"t1","name":"read","input":{"z":1,"a":[2]}}]},
          {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r1"},
                                                               {"type":"text","text":"r2"}]},
            {"type":"tool_result","tool_use_id":"t2","is_error":true},
            {"type":"text","text":"go on"}]}])",
      R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=abc;"},
                   {"type":"text","text":"rules"}])"));
  EXPECT_EQ(
      ChatOf(request).messages_json,
      R"([{"role":"system","content":"rules"},{"role":"user","content":"a\nb\nnote"},)"
      R"({"role":"assistant","content":"I look","reasoning":"hm","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"t1","type":"function","function":{"name":"read",)"
      R"("arguments":{"z":1,"a":[2]}}}]},)"
      R"({"role":"tool","content":"r1\nr2","tool_call_id":"t1","name":"read"},)"
      R"({"role":"tool","content":"error","tool_call_id":"t2"},)"
      R"({"role":"user","content":"go on"}])");
}

TEST(MessagesRequest, ABillingHeaderThatChangesChangesNoPrompt) {
  const auto with = [](const std::string& cch) {
    return ChatOf(Read(Body(R"("system":[{"type":"text","text":"x-anthropic-billing-header: cch=)" +
                            cch + R"(;"},{"type":"text","text":"rules"}])")))
        .messages_json;
  };
  EXPECT_EQ(with("1a2b"), with("ffff"));
  EXPECT_EQ(with("1a2b").find("billing"), std::string::npos);
}

TEST(MessagesRequest, OmittedThoughtsComeBackOutOfTheirSignature) {
  const AgentRequest request = Read(Messages(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":[
          {"type":"thinking","thinking":"","signature":"quire1.aG0="},
          {"type":"thinking","thinking":"","signature":"of another server"}]}])"));
  EXPECT_EQ(
      ChatOf(request).messages_json,
      R"([{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":"","reasoning":"hm","reasoning_content":"hm","thinking":"hm"}])");
}

TEST(MessagesRequest, FieldsReachThePipeline) {
  const AgentRequest request = Read(Body(
      R"("stop_sequences":["END"],"stream":true,"temperature":0.5,"top_p":0.9,"top_k":7,
         "thinking":{"type":"enabled","budget_tokens":2048},"output_config":{"effort":"max",
         "format":{"type":"json_schema","schema":{"type":"object","properties":{"b":{},"a":{}}}}},
         "metadata":{"user_id":"session-1"},"service_tier":"auto","betas":["x"],"new_field":1)"));
  const GenerateRequest& generate = request.generate;
  EXPECT_EQ(generate.model, "demo");
  EXPECT_EQ(generate.sampling.max_tokens, 16);
  EXPECT_TRUE(generate.sampling.max_tokens_at_most);
  EXPECT_EQ(generate.sampling.stop, std::vector<std::string>{"END"});
  EXPECT_FLOAT_EQ(*generate.sampling.temperature, 0.5f);
  EXPECT_EQ(generate.sampling.top_k, 7);
  EXPECT_TRUE(request.stream && generate.streaming && generate.read_answer);
  EXPECT_EQ(generate.thinking.enabled, true);
  EXPECT_EQ(generate.thinking.budget, 2048u);
  EXPECT_FALSE(generate.thinking.budget_firm);
  EXPECT_EQ(generate.thinking.effort, "high");
  EXPECT_EQ(generate.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(generate.constraint.source, R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(generate.constraint_field, "output_config.format.schema");
  EXPECT_EQ(request.session, "session-1");
  EXPECT_EQ(request.unknown_fields, std::vector<std::string>{"new_field"});
  EXPECT_EQ(Read(Body(R"("thinking":{"type":"disabled"})")).generate.thinking.enabled, false);
  EXPECT_FALSE(Read(Body(R"("thinking":{"type":"adaptive"})")).generate.thinking.enabled);
}

constexpr char kTools[] =
    R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true},
                {"type":"web_search_20250305","name":"web_search"},
                {"name":"late","input_schema":{},"defer_loading":true}])";

TEST(MessagesRequest, ToolsAreFunctionsAndBuiltInOnesAreLeftOut) {
  const AgentRequest request = Read(Body(kTools));
  EXPECT_EQ(ChatOf(request).tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(request.tools_left_out, 2u);
}

TEST(MessagesRequest, ADeferredToolIsShownOnceAResultRefersToIt) {
  const AgentRequest request =
      Read(Messages(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
                    "content":[{"type":"tool_reference","tool_name":"late"}]}]}])",
                    kTools));
  EXPECT_NE(ChatOf(request).tools_json.find(R"("name":"late")"), std::string::npos);
  EXPECT_EQ(request.tools_left_out, 1u);
}

TEST(MessagesRequest, ToolChoices) {
  const auto use = [](const std::string& choice) {
    return Read(Body(kTools + (R"(,"tool_choice":)" + choice))).generate.tool_use;
  };
  EXPECT_EQ(use(R"({"type":"auto"})").choice, ToolChoice::kAuto);
  EXPECT_EQ(use(R"({"type":"none"})").choice, ToolChoice::kNone);
  EXPECT_EQ(use(R"({"type":"any"})").choice, ToolChoice::kRequired);
  EXPECT_EQ(use(R"({"type":"tool","name":"f"})").choice, ToolChoice::kNamed);
  EXPECT_EQ(use(R"({"type":"tool","name":"f"})").name, "f");
  EXPECT_TRUE(use(R"({"type":"auto"})").parallel);
  EXPECT_FALSE(use(R"({"type":"any","disable_parallel_tool_use":true})").parallel);
}

TEST(MessagesRequest, WhatIsNotServedIsNamed) {
  const struct {
    std::string body;
    const char* named;
  } cases[] = {
      {R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})", "max_tokens: is missing"},
      {R"({"max_tokens":1})", "messages: is missing"},
      {Messages("[]"), "messages: must hold at least one"},
      {Messages(R"([{"role":"tool","content":"x"}])"), "messages[0].role"},
      {Messages(R"([{"role":"user","content":7}])"), "messages[0].content"},
      {Messages(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"}]}])"),
       "messages[0].content[1]: blocks of type \"image\" are not served"},
      {Messages(R"([{"role":"user","content":[{"type":"document"}]}])"), "\"document\""},
      {Messages(
           R"([{"role":"user","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]}])"),
       "messages[0].content[0]"},
      {Messages(
           R"([{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":"{}"}]}])"),
       "messages[0].content[0].input: must be an object"},
      {Messages(
           R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}]}])"),
       "messages[0].content[0].content[0]: blocks of type \"image\""},
      {Body(R"("system":[{"type":"image"}])"), "system[0]"},
      {Body(R"("tools":[{"name":"f"}])"), "tools[0].input_schema"},
      {Body(R"("tools":[{"input_schema":{}}])"), "tools[0].name"},
      {Body(R"("tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}])"),
       "tools[1].name: \"f\" came before"},
      {Body(kTools + std::string(R"(,"tool_choice":{"type":"tool","name":"web_search"})")),
       "tool_choice.name: \"web_search\" is a tool that the model is not shown"},
      {Body(kTools + std::string(R"(,"tool_choice":{"type":"tool","name":"g"})")),
       "tool_choice.name: \"g\" is no tool"},
      {Body(R"("tool_choice":{"type":"any"})"), "tool_choice: \"any\" needs a tool"},
      {Body(R"("tool_choice":{"type":"all"})"), "tool_choice.type"},
      {Body(R"("thinking":{"type":"enabled"})"), "thinking.budget_tokens: is missing"},
      {Body(R"("thinking":{"type":"enabled","budget_tokens":0})"), "thinking.budget_tokens"},
      {Body(R"("thinking":{"type":"on"})"), "thinking.type"},
      {Body(R"("output_config":{"effort":"huge"})"), "output_config.effort"},
      {Body(R"("output_config":{"format":{"type":"xml"}})"), "output_config.format: the type"},
      {Body(R"("output_config":{"format":{"type":"json_schema"}})"), "output_config.format.schema"},
      {Body(R"("container":"c1")"), "container: is not served"},
      {Body(R"("mcp_servers":[{"url":"x"}])"), "mcp_servers: is not served"},
      {Body(R"("temperature":-1)"), "temperature"},
      {Body(R"("stop_sequences":"END")"), "stop_sequences: must be a list"},
  };
  for (const auto& one : cases) {
    EXPECT_NE(Refused(one.body).find(one.named), std::string::npos) << one.body << "\n"
                                                                    << Refused(one.body);
  }
}

TEST(MessagesRequest, CountingNeedsNoMaxTokens) {
  const AgentRequest request =
      Read(R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})", Purpose::kCount);
  EXPECT_EQ(ChatOf(request).messages_json, R"([{"role":"user","content":"hi"}])");
}

TEST(MessagesRequest, MessagesAtTheLimitAreReadAndOneMoreIsRefused) {
  RequestLimits limits;
  limits.max_messages = 2;
  AgentRequest out;
  const std::string one = R"({"role":"user","content":"x"})";
  const std::string two = one + "," + one;
  EXPECT_FALSE(ReadRequest(Messages("[" + two + "]"), Purpose::kAnswer, limits, out));
  const auto problem =
      ReadRequest(Messages("[" + two + "," + one + "]"), Purpose::kAnswer, limits, out);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->message.find("--max-messages"), std::string::npos) << problem->message;
}

TEST(MessagesRequest, ToolsAtTheLimitAreReadAndOneMoreIsRefused) {
  RequestLimits limits;
  limits.max_tools = 2;
  AgentRequest out;
  const std::string said = R"([{"role":"user","content":"x"}])";
  const std::string two = R"({"name":"a","input_schema":{}},{"name":"b","input_schema":{}})";
  const std::string three = two + R"(,{"name":"c","input_schema":{}})";
  const auto body = [&](const std::string& tools) {
    return Messages(said, R"("tools":[)" + tools + "]");
  };
  EXPECT_FALSE(ReadRequest(body(two), Purpose::kAnswer, limits, out));
  const auto problem = ReadRequest(body(three), Purpose::kAnswer, limits, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "tools");
  EXPECT_NE(problem->message.find("--max-tools"), std::string::npos) << problem->message;
}

// A small body: one long name, and results that repeat it.
TEST(MessagesRequest, NamesTimesResultsEndAtTheLimitOfAPrompt) {
  std::string results;
  for (int i = 0; i < 2000; ++i) {
    results += results.empty() ? "" : ",";
    results += R"({"type":"tool_result","tool_use_id":"a"})";
  }
  const std::string body =
      Messages(R"([{"role":"assistant","content":[{"type":"tool_use","id":"a","name":")" +
               std::string(100'000, 'n') + R"(","input":{}}]},{"role":"user","content":[)" +
               results + "]}]");
  const auto account = std::make_shared<MemoryAccount>(size_t{1} << 30);
  MemoryHold hold(account);
  RequestLimits limits;
  limits.hold = &hold;
  AgentRequest out;
  const auto problem = ReadRequest(body, Purpose::kAnswer, limits, out);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->message.find("--max-prompt-bytes"), std::string::npos) << problem->message;
  EXPECT_GT(hold.bytes(), 2 * limits.max_prompt_bytes);
  EXPECT_LT(hold.bytes(), 4 * limits.max_prompt_bytes);
}

}  // namespace
}  // namespace quire::messages
