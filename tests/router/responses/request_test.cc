// Bodies of /v1/responses become chats; what is not served is named.
#include "router/responses/request.h"

#include <gtest/gtest.h>

#include <string>

#include "router/responses/tools.h"

namespace quire::responses {
namespace {

std::string Body(const std::string& more) {
  return R"({"model":"demo","input":"hi")" + (more.empty() ? "" : "," + more) + "}";
}
std::string Input(const std::string& items) { return R"({"model":"demo","input":)" + items + "}"; }

AgentRequest Read(const std::string& body) {
  AgentRequest out;
  const auto problem = ReadRequest(body, RequestLimits(), {}, out);
  EXPECT_FALSE(problem) << problem->message << "\n" << body;
  return out;
}

const ChatPrompt& ChatOf(const AgentRequest& request) {
  return std::get<ChatPrompt>(request.generate.prompt);
}

ApiError Refused(const std::string& body) {
  AgentRequest out;
  const auto problem = ReadRequest(body, RequestLimits(), {}, out);
  EXPECT_TRUE(problem) << body;
  return problem.value_or(ApiError());
}

std::string WholeOf(AgentRequest& request) {
  request.answer->Name("r", 1);
  request.answer->Finish({}, nullptr);
  return request.answer->Whole();
}

TEST(ResponsesRequest, EveryKindOfItemBecomesAMessage) {
  const AgentRequest request = Read(
      R"({"model":"demo","instructions":"rules","input":[
        {"type":"message","role":"developer","content":[{"type":"input_text","text":"dev"}]},
        {"role":"system","content":"sys"},
        {"role":"user","content":"a"},
        {"type":"message","id":"m","role":"user","content":[{"type":"input_text","text":"b"},
                                                             {"type":"input_text","text":"c"}]},
        {"type":"reasoning","id":"rs","summary":[],
         "content":[{"type":"reasoning_text","text":"hm"}]},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"},
                                                         {"type":"refusal","refusal":"no"}]},
        {"type":"function_call","call_id":"c1","name":"get","namespace":"web",
         "arguments":"{\"z\":1,\"a\":2}"},
        {"type":"function_call","call_id":"c2","name":"f","arguments":"not json"},
        {"type":"custom_tool_call","call_id":"c3","name":"patch","input":"*** Begin"},
        {"type":"function_call_output","call_id":"c1","output":"r1"},
        {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"x"},
                                                                 {"type":"input_text","text":"y"}]},
        {"type":"custom_tool_call_output","call_id":"c3","output":"done"},
        {"type":"reasoning","id":"rs2","summary":[],"encrypted_content":"quire1.aG0="},
        {"type":"function_call","call_id":"c4","name":"f","arguments":""}]})");
  EXPECT_EQ(
      ChatOf(request).messages_json,
      R"([{"role":"system","content":"rules\ndev\nsys"},{"role":"user","content":"a\nb\nc"},)"
      R"({"role":"assistant","content":"I look\nno","reasoning":"hm","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"web__get","arguments":{"z":1,"a":2}}},)"
      R"({"id":"c2","type":"function","function":{"name":"f","arguments":"not json"}},)"
      R"({"id":"c3","type":"function","function":{"name":"patch",)"
      R"("arguments":{"input":"*** Begin"}}}]},)"
      R"({"role":"tool","content":"r1","tool_call_id":"c1","name":"web__get"},)"
      R"({"role":"tool","content":"x\ny","tool_call_id":"c2","name":"f"},)"
      R"({"role":"tool","content":"done","tool_call_id":"c3","name":"patch"},)"
      R"({"role":"assistant","content":"","reasoning":"hm","reasoning_content":"hm","thinking":"hm","tool_calls":[)"
      R"({"id":"c4","type":"function","function":{"name":"f","arguments":{}}}]}])");
}

TEST(ResponsesRequest, FieldsReachThePipeline) {
  const AgentRequest request = Read(Body(
      R"("stream":true,"max_output_tokens":9,"temperature":0.5,"top_p":0.9,"top_logprobs":2,
         "priority":7,
         "include":["message.output_text.logprobs"],"reasoning":{"effort":"high","summary":"auto"},
         "text":{"format":{"type":"json_schema","name":"n","strict":true,
                 "schema":{"type":"object","properties":{"b":{},"a":{}}}},"verbosity":"low"},
         "parallel_tool_calls":false,"prompt_cache_key":"thread-1","store":true,"user":"u",
         "metadata":{"k":"v"},"truncation":"auto","service_tier":"auto","new_field":1)"));
  const GenerateRequest& generate = request.generate;
  EXPECT_EQ(generate.model, "demo");
  EXPECT_EQ(generate.priority, 7);
  EXPECT_TRUE(request.stream && generate.streaming && generate.read_answer);
  EXPECT_EQ(generate.sampling.max_tokens, 9);
  EXPECT_TRUE(generate.sampling.max_tokens_at_most);
  EXPECT_EQ(generate.sampling.max_tokens_field, "max_output_tokens");
  EXPECT_EQ(generate.sampling.logprobs, 2);
  EXPECT_FLOAT_EQ(*generate.sampling.temperature, 0.5f);
  EXPECT_EQ(generate.thinking.effort, "high");
  EXPECT_EQ(generate.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(generate.constraint.source, R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(generate.constraint_field, "text.format.schema");
  EXPECT_FALSE(generate.tool_use.parallel);
  EXPECT_EQ(request.session, "thread-1");
  EXPECT_EQ(request.unknown_fields, std::vector<std::string>{"new_field"});
  EXPECT_EQ(Read(Body(R"("reasoning":{"effort":"none"})")).generate.thinking.enabled, false);
  EXPECT_EQ(Read(Body(R"("text":{"format":{"type":"json_object"}})")).generate.constraint.kind,
            ConstraintKind::kJsonObject);
}

TEST(ResponsesRequest, AResponseRepeatsItsRequestAndSaysThatNothingIsKept) {
  AgentRequest asked = Read(Body(R"("store":true,"truncation":"auto","metadata":{"k":"v"},
    "instructions":"be brief","tools":[{"type":"web_search"}],"tool_choice":"none")"));
  const std::string whole = WholeOf(asked);
  for (const char* member :
       {R"("store":false)", R"("truncation":"disabled")", R"("metadata":{"k":"v"})",
        R"("instructions":"be brief")", R"("tools":[{"type":"web_search"}])",
        R"("tool_choice":"none")", R"("parallel_tool_calls":true)", R"("temperature":null)",
        R"("previous_response_id":null)"}) {
    EXPECT_NE(whole.find(member), std::string::npos) << member << "\n" << whole;
  }
}

constexpr char kTools[] = R"("tools":[
  {"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},
  {"type":"function","name":"g","parameters":null,"strict":null},
  {"type":"custom","name":"patch","description":"Edits.",
   "format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}},
  {"type":"namespace","name":"web","description":"n",
   "tools":[{"type":"function","name":"get","parameters":{}},{"type":"custom","name":"raw"}]},
  {"type":"web_search","external_web_access":false},
  {"type":"mcp","server_label":"s"}])";

TEST(ResponsesRequest, ARegularExpressionOfACustomToolIsAPatternOfItsInput) {
  const AgentRequest request =
      Read(Body(R"("tools":[{"type":"custom","name":"t","format":)"
                R"({"type":"grammar","syntax":"regex","definition":"a|\\d\""}}])"));
  EXPECT_EQ(ChatOf(request).tools_json,
            R"([{"type":"function","function":{"name":"t","description":)"
            R"("`input` matches this regular expression:\na|\\d\"","parameters":{"type":"object",)"
            R"("properties":{"input":{"type":"string","pattern":"^(?:a|\\d\")$"}},)"
            R"("required":["input"],"additionalProperties":false}}}])");
}

TEST(ResponsesRequest, ToolsAreFunctionsAndBuiltInOnesAreLeftOut) {
  const AgentRequest request = Read(Body(kTools));
  constexpr char kOneText[] =
      R"("parameters":{"type":"object","properties":{"input":{"type":"string"}},)"
      R"("required":["input"],"additionalProperties":false}}})";
  EXPECT_EQ(ChatOf(request).tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"},"strict":true}},)"
            R"({"type":"function","function":{"name":"g",)"
            R"("parameters":{"type":"object","properties":{}}}},)"
            R"({"type":"function","function":{"name":"patch","description":)"
            R"("Edits.\n\n`input` follows this Lark grammar:\nstart: \"x\"",)" +
                std::string(kOneText) +
                R"(,{"type":"function","function":{"name":"web__get","parameters":{}}},)"
                R"({"type":"function","function":{"name":"web__raw",)" +
                kOneText + "]");
  EXPECT_EQ(request.tools_left_out, 2u);
}

TEST(ResponsesRequest, ToolChoices) {
  const auto read = [](const std::string& choice) {
    return Read(Body(kTools + (R"(,"tool_choice":)" + choice)));
  };
  EXPECT_EQ(read(R"("auto")").generate.tool_use.choice, ToolChoice::kAuto);
  EXPECT_EQ(read(R"("none")").generate.tool_use.choice, ToolChoice::kNone);
  EXPECT_EQ(read(R"("required")").generate.tool_use.choice, ToolChoice::kRequired);
  const ToolUse named = read(R"({"type":"function","name":"f"})").generate.tool_use;
  EXPECT_EQ(named.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.name, "f");
  EXPECT_EQ(read(R"({"type":"custom","name":"patch"})").generate.tool_use.name, "patch");
  const AgentRequest allowed =
      read(R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"},
              {"type":"web_search"},{"type":"function","namespace":"web","name":"get"}]})");
  EXPECT_EQ(allowed.generate.tool_use.choice, ToolChoice::kRequired);
  EXPECT_EQ(ChatOf(allowed).tools_json,
            R"([{"type":"function","function":{"name":"g",)"
            R"("parameters":{"type":"object","properties":{}}}},)"
            R"({"type":"function","function":{"name":"web__get","parameters":{}}}])");
}

TEST(ResponsesRequest, WhatIsNotServedIsNamed) {
  const struct {
    std::string body;
    const char* named;
  } cases[] = {
      {R"({"model":"demo"})", "input: is missing"},
      {Input(R"("")"), "input: must not be empty"},
      {Input("[]"), "input: must hold at least one"},
      {Input("7"), "input: must be a text"},
      {Input(R"([{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])"),
       "input[0].content[0]: parts of type \"input_image\" are not served"},
      {Input(R"([{"role":"user","content":[{"type":"input_file"}]}])"), "\"input_file\""},
      {Input(R"([{"role":"user","content":[{"type":"input_text"}]}])"), "content[0].text"},
      {Input(R"([{"role":"tool","content":"x"}])"), "input[0].role"},
      {Input(R"([{"role":"user"}])"), "input[0].content: is missing"},
      {Input(R"([{"type":"function_call","name":"f","arguments":"{}"}])"), "input[0].call_id"},
      {Input(R"([{"type":"function_call_output","call_id":"c"}])"), "input[0].output: is missing"},
      {Input(
           R"([{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}])"),
       "input[0].output[0]: parts of type \"input_image\""},
      {Input(R"([{"type":"item_reference","id":"msg_1"}])"), "input[0]: refers to \"msg_1\""},
      {Input(R"([{"id":"msg_1"}])"), "input[0]: refers to \"msg_1\""},
      {Input(R"([{"type":"computer_call"}])"), "input[0].type: items of type \"computer_call\""},
      {Input("[3]"), "input[0]: must be an object"},
      {Body(R"("tools":{})"), "tools: must be a list"},
      {Body(R"("tools":[{"type":"hammer"}])"), "tools[0].type: \"hammer\""},
      {Body(R"("tools":[{"type":"function"}])"), "tools[0].name"},
      {Body(R"("tools":[{"type":"function","name":"f","parameters":"{}"}])"),
       "tools[0].parameters"},
      {Body(R"("tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}])"),
       "tools[1].name: \"f\" came before"},
      {Body(R"("tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"bnf"}}])"),
       "tools[0].format.syntax"},
      {Body(R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}])"),
       "tools[0].tools[0].type"},
      {Body(kTools + std::string(R"(,"tool_choice":{"type":"web_search"})")),
       "tool_choice: demands the built-in tool \"web_search\""},
      {Body(kTools + std::string(R"(,"tool_choice":{"type":"function","name":"h"})")),
       "tool_choice.name: \"h\" is no function"},
      {Body(kTools + std::string(R"(,"tool_choice":{"type":"allowed_tools","mode":"required",)"
                                 R"("tools":[{"type":"web_search"}]})")),
       "tool_choice.tools: holds no function"},
      {Body(R"("tool_choice":"required")"), "tool_choice: \"required\" needs a function"},
      {Body(R"("tool_choice":"any")"), "tool_choice: must be"},
      {Body(R"("background":true)"), "background: is not served"},
      {Body(R"("conversation":"conv_1")"), "conversation: is not served"},
      {Body(R"("prompt":{"id":"p"})"), "prompt: is not served"},
      {Body(R"("truncation":"middle")"), "truncation: must be"},
      {Body(R"("text":{"format":{"type":"xml"}})"), "text.format: the type"},
      {Body(R"("text":{"format":{"type":"json_schema","name":"n"}})"), "text.format.schema"},
      {Body(R"("max_output_tokens":0)"), "max_output_tokens: must be at least 1"},
      {Body(R"("top_logprobs":21)"), "top_logprobs: must be in [0, 20]"},
      {Body(R"("temperature":-1)"), "temperature"},
  };
  for (const auto& one : cases) {
    const std::string said = Refused(one.body).message;
    EXPECT_NE(said.find(one.named), std::string::npos) << one.body << "\n" << said;
  }
}

TEST(ResponsesRequest, AnEarlierResponseIsNotFound) {
  const ApiError error = Refused(Body(R"("previous_response_id":"resp_1")"));
  EXPECT_EQ(error.reason, "previous_response_not_found");
  EXPECT_EQ(error.param, "previous_response_id");
  EXPECT_NE(error.message.find("resp_1"), std::string::npos);
}

TEST(ResponsesRequest, ItemsAtTheLimitAreReadAndOneMoreIsRefused) {
  RequestLimits limits;
  limits.max_messages = 2;
  AgentRequest out;
  const std::string one = R"({"role":"user","content":"x"})";
  const std::string two = one + "," + one;
  EXPECT_FALSE(ReadRequest(Input("[" + two + "]"), limits, {}, out));
  const auto problem = ReadRequest(Input("[" + two + "," + one + "]"), limits, {}, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "input");
  EXPECT_NE(problem->message.find("--max-messages"), std::string::npos) << problem->message;
}

TEST(ResponsesRequest, ToolsAtTheLimitAreReadAndOneMoreIsRefused) {
  RequestLimits limits;
  limits.max_tools = 2;
  AgentRequest out;
  const std::string two = R"({"type":"function","name":"a"},{"type":"function","name":"b"})";
  const std::string three = two + R"(,{"type":"function","name":"c"})";
  const auto body = [](const std::string& tools) {
    return R"({"model":"demo","input":"x","tools":[)" + tools + "]}";
  };
  EXPECT_FALSE(ReadRequest(body(two), limits, {}, out));
  const auto problem = ReadRequest(body(three), limits, {}, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "tools");
  EXPECT_NE(problem->message.find("--max-tools"), std::string::npos) << problem->message;
}

TEST(ResponsesRequest, ASchemaAtTheLimitIsReadAndOneByteMoreIsRefused) {
  const auto body = [](size_t bytes) {
    const std::string frame = R"({"description":""})";
    return Body(R"("text":{"format":{"type":"json_schema","name":"n","schema":{"description":")" +
                std::string(bytes - frame.size(), 'x') + R"("}}})");
  };
  EXPECT_EQ(Read(body(kMaxConstraintBytes)).generate.constraint.source.size(), kMaxConstraintBytes);
  EXPECT_NE(Refused(body(kMaxConstraintBytes + 1)).message.find("text.format.schema"),
            std::string::npos);
}

TEST(ResponsesRequest, ErrorsOfThePipelineSpeakOfInput) {
  const ApiError error =
      InClientsWords({ApiCode::kInvalidArgument, "messages: too long", "messages", 0});
  EXPECT_EQ(error.param, "input");
  EXPECT_EQ(error.message, "input: too long");
  EXPECT_EQ(InClientsWords({ApiCode::kNotFound, "model: x", "model", 0}).param, "model");
}

TEST(ResponsesRequest, WhatAnAnswerRepeatsEndsAtItsLimit) {
  constexpr size_t kMost = 256u << 10;
  const auto problem_of = [](const std::string& more) {
    AgentRequest out;
    return ReadRequest(R"({"model":"m","input":"a")" + more + "}", RequestLimits(), Keeping(), out);
  };
  const auto metadata = [](size_t size) {
    return R"(,"metadata":{"a":")" + std::string(size, 'x') + "\"}";
  };
  size_t fits = 0, too_much = kMost + 1;
  while (too_much - fits > 1) {
    const size_t middle = (fits + too_much) / 2;
    (problem_of(metadata(middle)) ? too_much : fits) = middle;
  }
  EXPECT_GT(fits, kMost - 1024) << "the other members take some bytes";
  const auto problem = problem_of(metadata(too_much));
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "metadata");
  EXPECT_NE(problem->message.find("262144"), std::string::npos) << problem->message;
  // All members count together.
  EXPECT_FALSE(problem_of(metadata(fits - 9) + R"(,"user":"ten letters")")) << "null has 4 bytes";
  EXPECT_TRUE(problem_of(metadata(fits - 8) + R"(,"user":"ten letters")"));
  const std::string more(2 * kMost, 'i');
  EXPECT_FALSE(problem_of(R"(,"instructions":")" + more + "\"")) << "the prompt bounds it";
  const auto tool = [&](const std::string& type) {
    return R"(,"tools":[{"type":")" + type + R"(","name":"f","description":")" + more + R"("}])";
  };
  EXPECT_FALSE(problem_of(tool("function"))) << "the prompt bounds it";
  const auto not_shown = problem_of(tool("web_search"));
  ASSERT_TRUE(not_shown);
  EXPECT_EQ(not_shown->param, "tools");
}

}  // namespace
}  // namespace quire::responses
