// Bodies of /api/generate and /api/chat become requests; what is not served is named.
#include "router/ollama/request.h"

#include <gtest/gtest.h>

#include <string>

#include "router/ollama/words.h"

namespace quire::ollama {
namespace {

AgentRequest Read(Kind kind, const std::string& fields, const RequestLimits& limits = {}) {
  AgentRequest out;
  const std::string body = R"({"model":"demo",)" + fields + "}";
  const auto problem = ReadRequest(kind, body, limits, out);
  EXPECT_FALSE(problem) << problem->message << "\n" << body;
  return out;
}
AgentRequest Prompted(const std::string& more) {
  return Read(Kind::kGenerate, R"("prompt":"hi")" + (more.empty() ? "" : "," + more));
}
SamplingOptions Options(const std::string& options) {
  return Prompted(R"("options":{)" + options + "}").generate.sampling;
}

std::string Refused(Kind kind, const std::string& body, const RequestLimits& limits = {}) {
  AgentRequest out;
  const auto problem = ReadRequest(kind, body, limits, out);
  EXPECT_TRUE(problem) << body;
  if (!problem) return "";
  EXPECT_TRUE(problem->param.empty() || problem->message.starts_with(problem->param))
      << problem->message;
  return problem->message;
}
std::string RefusedPrompt(const std::string& more) {
  return Refused(Kind::kGenerate, R"({"model":"demo","prompt":"hi",)" + more + "}");
}
std::string RefusedChat(const std::string& message, const std::string& more = "") {
  return Refused(Kind::kChat, R"({"model":"demo","messages":[)" + message + "]" + more + "}");
}

const ChatPrompt& ChatOf(const AgentRequest& request) {
  return std::get<ChatPrompt>(request.generate.prompt);
}

TEST(OllamaRequest, APromptIsAChatOfOneTurnAndStreams) {
  const AgentRequest request = Prompted(R"("system":"be brief")");
  EXPECT_EQ(ChatOf(request).messages_json,
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
  EXPECT_TRUE(ChatOf(request).without_template.empty());
  EXPECT_TRUE(request.stream && request.generate.streaming && request.generate.read_answer);
  EXPECT_TRUE(request.generate.chat_defaults);
  EXPECT_EQ(request.generate.model, "demo");
  EXPECT_FALSE(request.only_load);
  const AgentRequest whole = Prompted(R"("stream":false)");
  EXPECT_FALSE(whole.stream || whole.generate.streaming);
  EXPECT_EQ(ChatOf(whole).without_template, "hi") << "what a model without a template continues";
}

TEST(OllamaRequest, ARawPromptIsTheWholePrompt) {
  const AgentRequest request = Prompted(R"("raw":true,"system":"unused")");
  EXPECT_EQ(std::get<TextPrompt>(request.generate.prompt).text, "hi");
  EXPECT_FALSE(request.generate.read_answer);
}

TEST(OllamaRequest, WithoutAPromptTheModelIsLoadedOrUnloaded) {
  EXPECT_TRUE(Read(Kind::kGenerate, R"("keep_alive":0)").only_load);
  EXPECT_TRUE(Read(Kind::kGenerate, R"("prompt":"")").only_load);
  EXPECT_TRUE(Read(Kind::kChat, R"("messages":[])").only_load);
  const AgentRequest chat = Read(Kind::kChat, R"("keep_alive":"1h30m")");
  EXPECT_TRUE(chat.only_load);
  EXPECT_EQ(chat.keep_alive, int64_t{5400} * 1'000'000);
  EXPECT_NE(chat.answer, nullptr);
}

TEST(OllamaRequest, OptionsAreSamplingParameters) {
  const SamplingOptions all = Options(
      R"("temperature":0.5,"top_k":7,"top_p":0.9,"min_p":0.05,"typical_p":0.8,"seed":42,
         "num_predict":12,"stop":["a","b"],"repeat_penalty":1.25,"presence_penalty":0.5,
         "frequency_penalty":-0.5,"repeat_last_n":-1)");
  EXPECT_FLOAT_EQ(*all.temperature, 0.5f);
  EXPECT_EQ(all.top_k, 7);
  EXPECT_FLOAT_EQ(*all.top_p, 0.9f);
  EXPECT_FLOAT_EQ(*all.min_p, 0.05f);
  EXPECT_FLOAT_EQ(*all.typical_p, 0.8f);
  EXPECT_EQ(all.seed, 42u);
  EXPECT_EQ(all.max_tokens, 12);
  EXPECT_TRUE(all.max_tokens_at_most);
  EXPECT_EQ(all.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_FLOAT_EQ(*all.repetition_penalty, 1.25f);
  EXPECT_FLOAT_EQ(*all.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(*all.frequency_penalty, -0.5f);
  for (const char* endless : {"-1", "-2", "0"}) {
    EXPECT_FALSE(Options(std::string(R"("num_predict":)") + endless).max_tokens) << endless;
  }
  EXPECT_FALSE(Options(R"("seed":-1)").seed) << "a random one";
  EXPECT_FALSE(Options(R"("seed":null)").seed);
}

TEST(OllamaRequest, OptionsThatAreNotServedAreNamed) {
  EXPECT_EQ(RefusedPrompt(R"("options":{"temprature":1})").find("options.temprature: is no option"),
            0u);
  EXPECT_NE(RefusedPrompt(R"("options":{"x":1})").find("temperature, top_k"), std::string::npos);
  for (const char* option :
       {R"("mirostat":1)", R"("tfs_z":0.5)", R"("penalize_newline":false)", R"("num_predict":-3)",
        R"("temperature":-1)", R"("top_p":0)", R"("repeat_penalty":0)", R"("stop":5)",
        R"("seed":"x")", R"("top_k":1.5)", R"("presence_penalty":3)"}) {
    const std::string name(option + 1, std::string(option).find('"', 1) - 1);
    const std::string said = RefusedPrompt(std::string(R"("options":{)") + option + "}");
    EXPECT_EQ(said.find("options." + name + ": "), 0u) << said;
  }
  EXPECT_EQ(RefusedPrompt(R"("options":[])").find("options: "), 0u);
  Options(R"("mirostat":0,"tfs_z":1.0,"penalize_newline":true)");
}

TEST(OllamaRequest, OptionsOfLoadingHaveNoEffectAndAreListed) {
  const AgentRequest request =
      Prompted(R"("options":{"num_ctx":4096,"num_gpu":1,"num_thread":2},"new_field":1)");
  EXPECT_EQ(request.unknown_fields, (std::vector<std::string>{"options.num_ctx", "options.num_gpu",
                                                              "options.num_thread", "new_field"}));
}

TEST(OllamaRequest, PenaltiesAreAboutTheWholeContextOrOff) {
  const SamplingOptions off = Options(R"("repeat_last_n":0,"repeat_penalty":1.5)");
  EXPECT_FLOAT_EQ(*off.repetition_penalty, 1.0f);
  EXPECT_FLOAT_EQ(*off.presence_penalty, 0.0f);
  Options(R"("repeat_last_n":64)");
  Options(R"("repeat_last_n":64,"repeat_penalty":1.0)");
  EXPECT_EQ(RefusedPrompt(R"("options":{"repeat_last_n":64,"repeat_penalty":1.1})")
                .find("options.repeat_last_n: "),
            0u);
}

TEST(OllamaRequest, AFormatIsAConstraint) {
  EXPECT_EQ(Prompted(R"("format":"json")").generate.constraint.kind, ConstraintKind::kJsonObject);
  const GenerateRequest schema =
      Prompted(R"("format":{"type":"object","properties":{"b":{},"a":{}}})").generate;
  EXPECT_EQ(schema.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(schema.constraint.source, R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(schema.constraint_field, "format");
  EXPECT_EQ(Prompted(R"("format":"")").generate.constraint.kind, ConstraintKind::kNone);
  EXPECT_EQ(RefusedPrompt(R"("format":"xml")").find("format: must be \"json\""), 0u);
  EXPECT_EQ(RefusedPrompt(R"("format":1)").find("format: must be \"json\""), 0u);
}

TEST(OllamaRequest, ThoughtsAreOnOffOrAnEffort) {
  EXPECT_EQ(Prompted(R"("think":true)").generate.thinking.enabled, true);
  EXPECT_EQ(Prompted(R"("think":false)").generate.thinking.enabled, false);
  const Thinking high = Prompted(R"("think":"high")").generate.thinking;
  EXPECT_EQ(high.enabled, true);
  EXPECT_EQ(high.effort, "high");
  EXPECT_FALSE(Prompted("").generate.thinking.enabled);
  EXPECT_EQ(RefusedPrompt(R"("think":"much")").find("think: "), 0u);
}

TEST(OllamaRequest, LogprobsComeWithTheirBest) {
  EXPECT_EQ(Prompted(R"("logprobs":true)").generate.sampling.logprobs, 0);
  EXPECT_EQ(Prompted(R"("logprobs":true,"top_logprobs":20)").generate.sampling.logprobs, 20);
  EXPECT_FALSE(Prompted(R"("logprobs":false)").generate.sampling.logprobs);
  EXPECT_EQ(RefusedPrompt(R"("logprobs":true,"top_logprobs":21)").find("top_logprobs: "), 0u);
  EXPECT_EQ(RefusedPrompt(R"("top_logprobs":1)").find("top_logprobs: needs"), 0u);
}

TEST(OllamaRequest, WhatIsNotServedIsNamed) {
  for (const char* field : {R"("suffix":"end")", R"("template":"{{ .Prompt }}")",
                            R"("context":[1,2])", R"("images":["aGk="])"}) {
    const std::string name(field + 1, std::string(field).find('"', 1) - 1);
    EXPECT_EQ(RefusedPrompt(field).find(name + ": "), 0u) << RefusedPrompt(field);
  }
  Prompted(R"("suffix":"","template":"","context":[],"images":[],"truncate":true,"shift":null)");
  EXPECT_EQ(Refused(Kind::kGenerate, R"({"prompt":"x"})").find("model: is missing"), 0u);
  EXPECT_NE(Refused(Kind::kGenerate, "[]").find("must be a JSON object"), std::string::npos);
  EXPECT_EQ(RefusedPrompt(R"("keep_alive":"soon")").find("keep_alive: must be a duration"), 0u);
  EXPECT_EQ(RefusedPrompt(R"("keep_alive":true)").find("keep_alive: "), 0u);
}

TEST(OllamaRequest, AChatHasItsMessagesToolsAndThoughts) {
  const AgentRequest request = Read(Kind::kChat,
                                    R"("messages":[
           {"role":"system","content":"rules"},
           {"role":"user","content":"weather?","images":[]},
           {"role":"assistant","thinking":"hm","tool_calls":[
             {"function":{"index":0,"name":"get_weather","arguments":{"city":"Ulm"}}},
             {"id":"own","function":{"name":"get_time","arguments":{}}}]},
           {"role":"tool","tool_name":"get_time","content":"noon"},
           {"role":"tool","content":"12 degrees"}],
         "tools":[{"type":"function","function":{"name":"get_weather","parameters":{}}}])");
  EXPECT_EQ(
      ChatOf(request).messages_json,
      R"([{"role":"system","content":"rules"},{"role":"user","content":"weather?"},)"
      R"({"role":"assistant","content":"","reasoning":"hm","tool_calls":[)"
      R"({"id":"call_0","type":"function","function":{"name":"get_weather","arguments":{"city":"Ulm"}}},)"
      R"({"id":"own","type":"function","function":{"name":"get_time","arguments":{}}}],)"
      R"("reasoning_content":"hm","thinking":"hm"},)"
      R"({"role":"tool","content":"noon","tool_call_id":"own","name":"get_time"},)"
      R"({"role":"tool","content":"12 degrees","tool_call_id":"call_0","name":"get_weather"}])");
  EXPECT_EQ(ChatOf(request).tools_json,
            R"([{"type":"function","function":{"name":"get_weather","parameters":{}}}])");
  EXPECT_TRUE(ChatOf(request).without_template.empty()) << "a model without a template refuses it";
}

TEST(OllamaRequest, MessagesAreRefusedWithTheirPlace) {
  EXPECT_EQ(RefusedChat(R"({"role":"user","content":"x","images":["aGk="]})")
                .find("messages[0].images: pictures are not served"),
            0u);
  EXPECT_EQ(RefusedChat(R"({"content":"x"})").find("messages[0].role: "), 0u);
  EXPECT_EQ(RefusedChat("1").find("messages[0]: "), 0u);
  EXPECT_EQ(RefusedChat(R"({"role":"user","content":1})").find("messages[0].content: "), 0u);
  for (const char* calls : {"1", "[1]", R"([{"function":{}}])", R"([{"function":{"name":1}}])"}) {
    const std::string message =
        std::string(R"({"role":"assistant","content":"","tool_calls":)") + calls + "}";
    EXPECT_EQ(RefusedChat(message).find("messages[0].tool_calls"), 0u) << calls;
  }
  EXPECT_EQ(RefusedChat(R"({"role":"user","content":"x"})", R"(,"tools":[{"type":"web"}])")
                .find("tools[0].type: "),
            0u);
  EXPECT_EQ(Refused(Kind::kChat, R"({"model":"demo","messages":"x"})").find("messages: "), 0u);
}

TEST(OllamaRequest, MessagesAtTheLimitAreReadAndOneMoreIsRefused) {
  RequestLimits limits;
  limits.max_messages = 2;
  const std::string one = R"({"role":"user","content":"x"})";
  Read(Kind::kChat, "\"messages\":[" + one + "," + one + "]", limits);
  const std::string three = R"({"model":"demo","messages":[)" + one + "," + one + "," + one + "]}";
  EXPECT_NE(Refused(Kind::kChat, three, limits).find("--max-messages"), std::string::npos);
}

TEST(OllamaRequest, APromptAtTheLimitIsReadAndOneByteMoreIsBlamedAsPrompt) {
  RequestLimits limits;
  const std::string fixed = R"([{"role":"user","content":""}])";
  limits.max_prompt_bytes = fixed.size() + 5;
  Read(Kind::kGenerate, R"("prompt":"12345")", limits);
  EXPECT_EQ(
      Refused(Kind::kGenerate, R"({"model":"demo","prompt":"123456"})", limits).find("prompt: "),
      0u);
}

TEST(OllamaRequest, ErrorsOfThePipelineHaveTheClientsNames) {
  const ApiError error{ApiCode::kInvalidArgument, "repetition_penalty: is not served",
                       "repetition_penalty", 0};
  EXPECT_EQ(InClientsWords(Kind::kChat, error).message, "options.repeat_penalty: is not served");
  const ApiError chat{ApiCode::kInvalidArgument, "messages: is too long", "messages", 0};
  EXPECT_EQ(InClientsWords(Kind::kChat, chat).message, "messages: is too long");
  EXPECT_EQ(InClientsWords(Kind::kGenerate, chat).message, "prompt: is too long");
  EXPECT_EQ(InClientsWords(Kind::kGenerate, chat).param, "prompt");
}

TEST(OllamaRequest, AModelsNameComesUnderTwoNames) {
  std::string name;
  EXPECT_FALSE(ReadModelName(R"({"model":"a","name":"b"})", name));
  EXPECT_EQ(name, "a");
  EXPECT_FALSE(ReadModelName(R"({"name":"b","verbose":true})", name));
  EXPECT_EQ(name, "b");
  for (const char* body : {"{}", "[]", "x", R"({"model":1})", R"({"model":""})"}) {
    EXPECT_TRUE(ReadModelName(body, name)) << body;
  }
  const std::string frame = R"({"model":"a","x":""})";
  const std::string fits =
      R"({"model":"a","x":")" + std::string(kMaxSmallBodyBytes - frame.size(), 'x') + "\"}";
  EXPECT_EQ(fits.size(), kMaxSmallBodyBytes);
  EXPECT_FALSE(ReadModelName(fits, name));
  EXPECT_TRUE(ReadModelName(fits + " ", name));
}

TEST(OllamaRequest, APullSaysWhetherItStreams) {
  std::string name;
  bool stream = true;
  EXPECT_FALSE(ReadModelName(R"({"name":"a","stream":null})", name, &stream));
  EXPECT_TRUE(stream);
  EXPECT_FALSE(ReadModelName(R"({"model":"a","stream":false})", name, &stream));
  EXPECT_FALSE(stream);
  EXPECT_TRUE(ReadModelName(R"({"model":"a","stream":1})", name, &stream));
}

TEST(OllamaRequest, OnlyShortNamesAndTheHubsArePulled) {
  for (const char* name : {"qwen3:4b", "llama3.2", "hf:org/repo", "hf.co/org/repo:v1.0",
                           "hf:org/repo:refs/pr/3/Model.Q4_K_M.gguf"}) {
    EXPECT_FALSE(CheckPullName(name)) << name;
  }
  for (const char* name :
       {"", "org/repo", "/etc/passwd", "./model", "../model", "hf:../x", "hf:org/../x", "hf:", "-x",
        "--catalogue=/etc/passwd", "hf:-x", "https://host/m.gguf", "s3://bucket/m", "a b",
        "http://127.0.0.1/m.gguf", "m.gguf#sha256", "a\nb", "hf:org/re po"}) {
    const auto problem = CheckPullName(name);
    ASSERT_TRUE(problem) << name;
    EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
    EXPECT_EQ(problem->message.find("model: may be a short name"), 0u);
  }
  EXPECT_FALSE(CheckPullName(std::string(kMaxPullNameBytes, 'a')));
  EXPECT_TRUE(CheckPullName(std::string(kMaxPullNameBytes + 1, 'a')));
}

TEST(OllamaRequest, ServedNamesFollowFromWhereAModelCameFrom) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ServedNamesOf("demo"), Names{"demo"});
  EXPECT_EQ(ServedNamesOf("demo:latest"), (Names{"demo:latest", "demo"}));
  EXPECT_EQ(ServedNamesOf("hf:org/repo"), (Names{"hf:org/repo", "org/repo"}));
  EXPECT_EQ(ServedNamesOf("hf.co/org/repo:v1"), (Names{"hf.co/org/repo:v1", "org/repo"}));
  EXPECT_EQ(ServedNamesOf("hf:org/repo/m.GGUF"), (Names{"hf:org/repo/m.GGUF", "m"}));
}

TEST(OllamaWords, DurationsAreGosOrSeconds) {
  constexpr int64_t kSecond = 1'000'000;
  const std::pair<const char*, int64_t> good[] = {
      {"5m", 300 * kSecond},
      {"1h30m", 5400 * kSecond},
      {"300ms", 300'000},
      {"1.5h", 5400 * kSecond},
      {"0", 0},
      {"300", 300 * kSecond},
      {"-1", kForEver},
      {"-5m", kForEver},
      {"2us", 2},
      {"2\xc2\xb5s", 2},
      {"1000ns", 1},
      {"+1s", kSecond},
      {"8760h", kLongestKeepAlive},
      {"8761h", kLongestKeepAlive},
      {"-0", 0},
  };
  for (const auto& [text, micros] : good) EXPECT_EQ(ReadDuration(text), micros) << text;
  for (const char* text : {"", "m", "5x", "5 m", "1h2", "-", "5m-", "inf", "nan", "--1", "1e3s"}) {
    EXPECT_EQ(ReadDuration(text), std::nullopt) << text;
  }
  EXPECT_EQ(OfSeconds(1e300), kLongestKeepAlive);
  EXPECT_EQ(OfSeconds(-0.5), kForEver);
  EXPECT_EQ(OfSeconds(0.25), 250'000);
}

TEST(OllamaWords, ErrorsPathsAndTimes) {
  EXPECT_EQ(ErrorJson("no \"x\""), R"({"error":"no \"x\""})");
  for (const char* path : {"/api", "/api/", "/api/tags"}) EXPECT_TRUE(IsPath(path)) << path;
  for (const char* path : {"/", "/apis", "/v1/api/", "/API/"}) EXPECT_FALSE(IsPath(path)) << path;
  EXPECT_EQ(TimeText(1'700'000'000), "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(TimeText(1'700'000'000, 1'000'042), "2023-11-14T22:13:21.000042Z");
  EXPECT_EQ(ParametersText(0), "");
  EXPECT_EQ(ParametersText(950), "950");
  EXPECT_EQ(ParametersText(950'000), "950K");
  EXPECT_EQ(ParametersText(268'098'176), "268.10M");
  EXPECT_EQ(ParametersText(8'030'261'248), "8.0B");
}

}  // namespace
}  // namespace quire::ollama
