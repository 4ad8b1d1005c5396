#include "router/http/api_request.h"

#include <gtest/gtest.h>

#include "common/json/json.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

ApiRequest MustParse(ApiKind kind, const std::string& body) {
  ApiRequest out;
  const auto problem = ParseApiRequest(kind, body, {}, out);
  EXPECT_FALSE(problem.has_value()) << body << ": " << (problem ? problem->message : "");
  return out;
}

struct BadCase {
  ApiKind kind;
  std::string body;
  std::string param;
};
constexpr ApiKind kText = ApiKind::kCompletion;
constexpr ApiKind kTalk = ApiKind::kChat;

TEST(ApiRequest, PromptShapes) {
  EXPECT_EQ(std::get<TextPrompt>(MustParse(kText, R"({"prompt":"hi"})").requests[0].prompt).text,
            "hi");
  EXPECT_EQ(MustParse(kText, R"({"prompt":["a","b","c"]})").requests.size(), 3u);
  const ApiRequest ids = MustParse(kText, R"({"prompt":[1,2,3]})");
  ASSERT_EQ(ids.requests.size(), 1u);
  EXPECT_EQ(std::get<TokenPrompt>(ids.requests[0].prompt).ids, (std::vector<TokenId>{1, 2, 3}));
  const ApiRequest lists = MustParse(kText, R"({"prompt":[[1],[2,3]]})");
  ASSERT_EQ(lists.requests.size(), 2u);
  EXPECT_EQ(std::get<TokenPrompt>(lists.requests[1].prompt).ids, (std::vector<TokenId>{2, 3}));
  EXPECT_FALSE(
      std::get<TextPrompt>(
          MustParse(kText, R"({"prompt":"x","add_special_tokens":false})").requests[0].prompt)
          .add_special_tokens);
}

TEST(ApiRequest, EverySamplingFieldArrives) {
  const ApiRequest r = MustParse(kText, R"({"prompt":"x","model":"m","temperature":0.5,"top_p":0.9,
    "top_k":5,"min_p":0.1,"typical_p":0.8,"repetition_penalty":1.1,"frequency_penalty":-0.5,
    "presence_penalty":0.25,
    "seed":18446744073709551615,"max_tokens":7,"min_tokens":2,"stop":["a","b"],
    "stop_token_ids":[3],"include_stop_str_in_output":true,"ignore_eos":true,"n":2,"logprobs":4,
    "prompt_logprobs":1,"logit_bias":{"5":-1.5},"allowed_token_ids":[1,2],"bad_words":["w"],
    "skip_special_tokens":false,"use_beam_search":true,"length_penalty":0.7,
    "early_stopping":"never","stream":true,
    "stream_options":{"include_usage":true},"return_token_ids":true,"echo":true,
    "truncate_prompt_tokens":9,"priority":-3,"cache_salt":"s"})");
  const GenerateRequest& g = r.requests[0];
  const SamplingOptions& s = g.sampling;
  EXPECT_EQ(g.model, "m");
  EXPECT_FLOAT_EQ(*s.temperature, 0.5f);
  EXPECT_FLOAT_EQ(*s.top_p, 0.9f);
  EXPECT_EQ(*s.top_k, 5);
  EXPECT_FLOAT_EQ(*s.min_p, 0.1f);
  EXPECT_FLOAT_EQ(*s.typical_p, 0.8f);
  EXPECT_FLOAT_EQ(*s.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(*s.frequency_penalty, -0.5f);
  EXPECT_FLOAT_EQ(*s.presence_penalty, 0.25f);
  EXPECT_EQ(*s.seed, 18446744073709551615ull);
  EXPECT_EQ(*s.max_tokens, 7);
  EXPECT_EQ(*s.min_tokens, 2);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<TokenId>{3}));
  EXPECT_TRUE(s.include_stop_str_in_output && s.ignore_eos && s.use_beam_search);
  EXPECT_EQ(s.n, 2);
  EXPECT_EQ(*s.logprobs, 4);
  EXPECT_EQ(*s.prompt_logprobs, 4);  // an echo shows as many as the outputs have
  EXPECT_EQ(*r.prompt_logprobs, 1);
  EXPECT_FLOAT_EQ(s.logit_bias.at(5), -1.5f);
  EXPECT_EQ(s.allowed_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(s.bad_words, (std::vector<std::string>{"w"}));
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_FLOAT_EQ(s.length_penalty.value(), 0.7f);
  EXPECT_EQ(s.early_stopping, EarlyStopping::kNever);
  EXPECT_TRUE(r.stream && r.include_usage && r.return_token_ids && g.streaming && g.echo);
  EXPECT_EQ(*g.truncate_prompt_tokens, 9);
  EXPECT_EQ(g.priority, -3);
  EXPECT_EQ(g.cache_salt, "s");
  EXPECT_FALSE(g.chat_defaults);
}

TEST(ApiRequest, ChatJoinsTextPartsAndKeepsTheRest) {
  const ApiRequest r = MustParse(kTalk, R"({"messages":[
    {"role":"system","content":"s"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"joe"},
    {"role":"assistant","content":null,"tool_calls":[]}],
    "max_tokens":5,"max_completion_tokens":6,"logprobs":true,"top_logprobs":2,
    "chat_template_kwargs":{"x":1}})");
  const GenerateRequest& g = r.requests[0];
  const ChatPrompt& chat = std::get<ChatPrompt>(g.prompt);
  EXPECT_EQ(chat.messages_json,
            R"([{"role":"system","content":"s"},{"role":"user","content":"a\nb","name":"joe"},)"
            R"({"role":"assistant","content":"","tool_calls":[]}])");
  EXPECT_EQ(chat.template_kwargs_json, R"({"x":1})");
  EXPECT_EQ(*g.sampling.max_tokens, 6);
  EXPECT_EQ(g.sampling.max_tokens_field, "max_completion_tokens");
  EXPECT_EQ(*g.sampling.logprobs, 2);
  EXPECT_TRUE(g.chat_defaults);
  EXPECT_FALSE(chat.add_special_tokens);
  EXPECT_TRUE(chat.add_generation_prompt);
}

// Templates print them by tojson: a text would be quoted once more.
TEST(ApiRequest, ArgumentsOfToolCallsReachTheTemplateAsTheyAreMeant) {
  const ApiRequest r = MustParse(kTalk, R"({"messages":[{"role":"assistant","tool_calls":[
    {"type":"function","function":{"name":"f","arguments":"{\"a\": [1]}"}},
    {"type":"function","function":{"name":"g","arguments":""}},
    {"type":"function","function":{"name":"h","arguments":{"b":2}}},
    {"type":"function","function":{"name":"i"}}]}]})");
  EXPECT_EQ(std::get<ChatPrompt>(r.requests[0].prompt).messages_json,
            R"([{"role":"assistant","tool_calls":[)"
            R"({"type":"function","function":{"name":"f","arguments":{"a":[1]}}},)"
            R"({"type":"function","function":{"name":"g","arguments":{}}},)"
            R"({"type":"function","function":{"name":"h","arguments":{"b":2}}},)"
            R"({"type":"function","function":{"name":"i"}}],"content":""}])");
}

TEST(ApiRequest, APartMayBeATextByItself) {
  const ApiRequest r = MustParse(
      kTalk, R"({"messages":[{"role":"user","content":["a",{"type":"text","text":"b"},"c"]}]})");
  EXPECT_EQ(std::get<ChatPrompt>(r.requests[0].prompt).messages_json,
            R"([{"role":"user","content":"a\nb\nc"}])");
}

TEST(ApiRequest, KnownFieldsPassAtTheirNeutralValue) {
  MustParse(
      kText,
      R"({"prompt":"x","best_of":1,"suffix":null,"logit_bias":{},"response_format":{"type":"text"},
    "stop":null,"n":1,"logprobs":null,"echo":false,"user":"u","early_stopping":false,
    "spaces_between_special_tokens":true,"guided_json":null})");
  MustParse(kTalk, R"({"messages":[{"role":"user","content":"x"}],"tools":[],"tool_choice":"auto",
    "functions":null,"parallel_tool_calls":true,"logprobs":false,"top_logprobs":0,
    "modalities":["text"],
    "store":false,"metadata":{"a":"b"},"service_tier":"auto","reasoning_effort":null})");
}

TEST(ApiRequest, AConstraintArrivesInEveryRequestOfABody) {
  const ApiRequest two = MustParse(kText, R"({"prompt":["a","b"],"guided_regex":"[0-9]+"})");
  ASSERT_EQ(two.requests.size(), 2u);
  for (const GenerateRequest& request : two.requests) {
    EXPECT_EQ(request.constraint.kind, ConstraintKind::kRegex);
    EXPECT_EQ(request.constraint.source, "[0-9]+");
    EXPECT_EQ(request.constraint_field, "guided_regex");
  }
  const ApiRequest chat = MustParse(kTalk, R"({"messages":[{"role":"user","content":"x"}],
      "response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
      "schema":{"properties":{"b":{},"a":{}}}}}})");
  EXPECT_EQ(chat.requests[0].constraint.source, R"({"properties":{"b":{},"a":{}}})");
  EXPECT_TRUE(two.unknown_fields.empty() && chat.unknown_fields.empty());
}

// Every prompt's request has a copy of its own: they are charged before they are made.
TEST(ApiRequest, CopiesOfAConstraintAreChargedBeforeTheyAreMade) {
  std::string prompts = "\"x\"";
  for (int i = 0; i < 63; ++i) prompts += ",\"x\"";
  const std::string body =
      "{\"prompt\":[" + prompts + "],\"regex\":\"" + std::string(kMaxConstraintBytes, 'a') + "\"}";
  for (const size_t limit : {size_t{40} << 20, size_t{20} << 20}) {
    MemoryHold hold(std::make_shared<MemoryAccount>(limit));
    RequestLimits limits;
    limits.hold = &hold;
    ApiRequest out;
    const auto problem = ParseApiRequest(kText, body, limits, out);
    EXPECT_EQ(problem.has_value(), limit < size_t{32} << 20);
    if (!problem) continue;
    EXPECT_EQ(problem->code, ApiCode::kUnavailable);
    EXPECT_TRUE(out.requests.empty());
  }
}

TEST(ApiRequest, UnknownFieldsAreListedAndIgnored) {
  const ApiRequest r = MustParse(kText, R"({"prompt":"x","foo":1,"bar":{"deep":[1]}})");
  EXPECT_EQ(r.unknown_fields, (std::vector<std::string>{"foo", "bar"}));
}

TEST(ApiRequest, BadInputNamesTheField) {
  const BadCase cases[] = {
      {kText, "", ""},
      {kText, "not json", ""},
      {kText, "{\"prompt\":\"x\"", ""},
      {kText, "[1]", ""},
      {kText, std::string(100, '[') + std::string(100, ']'), ""},
      {kText, "{}", "prompt"},
      {kText, R"({"prompt":""})", "prompt"},
      {kText, R"({"prompt":[]})", "prompt"},
      {kText, R"({"prompt":[[]]})", "prompt"},
      {kText, R"({"prompt":["a",""]})", "prompt"},
      {kText, R"({"prompt":["a",1]})", "prompt"},
      {kText, R"({"prompt":[1,"a"]})", "prompt"},
      {kText, R"({"prompt":[1,-2]})", "prompt"},
      {kText, R"({"prompt":[1.5]})", "prompt"},
      {kText, R"({"prompt":[4294967296]})", "prompt"},
      {kText, R"({"prompt":{"a":1}})", "prompt"},
      {kText, R"({"prompt":[{"a":1}]})", "prompt"},
      {kText, R"({"prompt":3})", "prompt"},
      {kText, R"({"prompt":"x","model":3})", "model"},
      {kText, R"({"prompt":"x","temperature":"hot"})", "temperature"},
      {kText, R"({"prompt":"x","model":")" + std::string(1025, 'm') + "\"}", "model"},
      {kText, R"({"prompt":"x","cache_salt":")" + std::string(1025, 'm') + "\"}", "cache_salt"},
      {kText, R"({"prompt":"x","request_id":")" + std::string(1025, 'm') + "\"}", "request_id"},
      {kText, R"({"prompt":["x","y"],"resume":{"seed":1,"created":1,"model_id":"m","outputs":[]}})",
       "resume"},
      {kText, R"({"prompt":"x","temperature":-1})", "temperature"},
      {kText, R"({"prompt":"x","temperature":1e999})", ""},
      {kText, R"({"prompt":"x","temperature":NaN})", ""},
      {kText, R"({"prompt":"x","temperature":101})", "temperature"},
      {kText, R"({"prompt":"x","top_p":0})", "top_p"},
      {kText, R"({"prompt":"x","top_p":1.1})", "top_p"},
      {kText, R"({"prompt":"x","top_k":-2})", "top_k"},
      {kText, R"({"prompt":"x","top_k":99999999999})", "top_k"},
      {kText, R"({"prompt":"x","min_p":-0.1})", "min_p"},
      {kText, R"({"prompt":"x","repetition_penalty":0})", "repetition_penalty"},
      {kText, R"({"prompt":"x","frequency_penalty":3})", "frequency_penalty"},
      {kText, R"({"prompt":"x","presence_penalty":-3})", "presence_penalty"},
      {kText, R"({"prompt":"x","max_tokens":0})", "max_tokens"},
      {kText, R"({"prompt":"x","max_tokens":-1})", "max_tokens"},
      {kText, R"({"prompt":"x","max_tokens":2.5})", "max_tokens"},
      {kText, R"({"prompt":"x","max_tokens":1e300})", "max_tokens"},
      {kText, R"({"prompt":"x","max_tokens":2,"min_tokens":3})", "min_tokens"},
      {kText, R"({"prompt":"x","n":0})", "n"},
      {kText, R"({"prompt":"x","n":129})", "n"},
      {kText, R"({"prompt":"x","logprobs":21})", "logprobs"},
      {kText, R"({"prompt":"x","seed":"s"})", "seed"},
      {kText, R"({"prompt":"x","stop":3})", "stop"},
      {kText, R"({"prompt":"x","stop":[""]})", "stop"},
      {kText,
       R"({"prompt":"x","stop":["1","2","3","4","5","6","7","8","9",)"
       R"("10","11","12","13","14","15","16","17"]})",
       "stop"},
      {kText, "{\"prompt\":\"x\",\"stop\":\"" + std::string(257, 'a') + "\"}", "stop"},
      {kText, R"({"prompt":"x","logit_bias":{"a":1}})", "logit_bias"},
      {kText, R"({"prompt":"x","logit_bias":{"1":101}})", "logit_bias"},
      {kText, R"({"prompt":"x","stream":"yes"})", "stream"},
      {kText, R"({"prompt":"x","stream_options":[]})", "stream_options"},
      {kText, R"({"prompt":"x","stream_options":{"include_usage":3}})",
       "stream_options.include_usage"},
      {kText, R"({"prompt":"x","best_of":2})", "best_of"},
      {kText, R"({"prompt":"x","early_stopping":"sometimes"})", "early_stopping"},
      {kText, R"({"prompt":"x","early_stopping":1})", "early_stopping"},
      {kText, R"({"prompt":"x","suffix":"end"})", "suffix"},
      {kText, R"({"prompt":"x","response_format":{"type":"yaml"}})", "response_format"},
      {kText, R"({"prompt":"x","guided_regex":3})", "guided_regex"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"grammar":"a","json_schema":{}})",
       "json_schema"},
      {kText, R"({"prompt":"x","resume":{"seed":1}})", "resume"},
      {kText, R"({"prompt":"x","truncate_prompt_tokens":-2})", "truncate_prompt_tokens"},
      {kTalk, "{}", "messages"},
      {kTalk, R"({"messages":"hi"})", "messages"},
      {kTalk, R"({"messages":[]})", "messages"},
      {kTalk, R"({"messages":["hi"]})", "messages[0]"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"},{"content":"x"}]})",
       "messages[1].role"},
      {kTalk, R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {kTalk, R"({"messages":[{"role":"user","content":3}]})", "messages[0].content"},
      {kTalk, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content"},
      {kTalk, R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content"},
      {kTalk, R"({"messages":[{"role":"user","content":["a",3]}]})", "messages[0].content"},
      {kTalk, R"({"messages":[{"role":"assistant","tool_calls":[3]}]})",
       "messages[0].tool_calls[0]"},
      {kTalk,
       R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}]})",
       "messages[0].tool_calls[0].function.arguments"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]})",
       "tools[0].function"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})",
       "tool_choice"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})", "top_logprobs"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":21})",
       "top_logprobs"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"logprobs":2})", "logprobs"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":0})",
       "max_completion_tokens"},
      {kTalk, R"({"messages":[{"role":"u","content":"x"}],"prediction":"a"})", "prediction"},
      {kTalk, R"({"messages":[{"role":"u","content":"x"}],"prediction":{"content":"a"}})",
       "prediction"},
      {kTalk,
       R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"text","content":"a"}})",
       "prediction"},
      {kTalk, R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content"}})",
       "prediction.content"},
      {kTalk,
       R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content","content":3}})",
       "prediction.content"},
      {kTalk,
       R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content","content":["a"]}})",
       "prediction.content"},
      {kTalk,
       R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content",)"
       R"("content":[{"type":"image_url"}]}})",
       "prediction.content"},
      {kTalk,
       R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content",)"
       R"("content":[{"type":"text"}]}})",
       "prediction.content"},
      {kTalk, R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":true})",
       "continue_final_message"},
  };
  for (const BadCase& bad : cases) {
    ApiRequest out;
    const auto problem = ParseApiRequest(bad.kind, bad.body, {}, out);
    ASSERT_TRUE(problem.has_value()) << bad.body.substr(0, 200);
    EXPECT_EQ(problem->code, ApiCode::kInvalidArgument) << bad.body.substr(0, 200);
    EXPECT_EQ(problem->param, bad.param) << bad.body.substr(0, 200);
    EXPECT_FALSE(problem->message.empty());
    EXPECT_EQ(problem->message.find('\n'), std::string::npos);
  }
}

TEST(ApiRequest, PromptCountAtLimitPassesAndLimitPlusOneDoesNot) {
  RequestLimits limits;
  limits.max_prompts = 3;
  ApiRequest out;
  EXPECT_FALSE(ParseApiRequest(kText, R"({"prompt":["a","b","c"]})", limits, out).has_value());
  const auto problem = ParseApiRequest(kText, R"({"prompt":["a","b","c","d"]})", limits, out);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->param, "prompt");
}

std::string CallWith(const std::string& arguments) {
  std::string quoted;
  json::AppendQuoted(arguments, quoted);
  return R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":)" + quoted +
         "}}]}]}";
}

std::string Lists(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// They lie in the body, its messages, a message, its calls, a call and its function.
TEST(ApiRequest, DepthCountsThroughTheArgumentsOfACall) {
  const RequestLimits limits;
  ApiRequest out;
  EXPECT_FALSE(ParseApiRequest(kTalk, CallWith(Lists(64 - 6)), limits, out).has_value());
  const auto problem = ParseApiRequest(kTalk, CallWith(Lists(64 - 5)), limits, out);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
  EXPECT_EQ(problem->param, "messages[0].tool_calls[0].function.arguments");
}

TEST(ApiRequest, ValuesAtTheLimitPassAndThoseInArgumentsCount) {
  RequestLimits limits;
  limits.max_json_values = 20;
  ApiRequest out;
  const auto zeros = [](size_t count) {
    std::string text = "[0";
    for (size_t i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  const auto body = [&](size_t count) {
    return R"({"prompt":"x","user":"u","unknown":)" + zeros(count) + "}";
  };
  EXPECT_FALSE(ParseApiRequest(kText, body(16), limits, out).has_value());
  const auto problem = ParseApiRequest(kText, body(17), limits, out);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
  EXPECT_NE(problem->message.find("values"), std::string::npos);
  const auto call_with = [&](size_t first, size_t second) {
    std::string one, other;
    json::AppendQuoted(zeros(first), one);
    json::AppendQuoted(zeros(second), other);
    return R"({"messages":[{"role":"a","tool_calls":[{"function":{"arguments":)" + one +
           R"(}},{"function":{"arguments":)" + other + "}}]}]}";
  };
  EXPECT_FALSE(ParseApiRequest(kTalk, call_with(9, 9), limits, out).has_value());
  EXPECT_TRUE(ParseApiRequest(kTalk, call_with(9, 10), limits, out).has_value());
}

TEST(ApiRequest, WhatIsReadIsChargedAndThenWhatIsMadeOfIt) {
  const auto account = std::make_shared<MemoryAccount>(1 << 20);
  MemoryHold hold(account);
  RequestLimits limits;
  limits.hold = &hold;
  ApiRequest out;
  const std::string body = R"({"prompt":"x","unknown":["a text of some length","another one"]})";
  EXPECT_FALSE(ParseApiRequest(kText, body, limits, out).has_value());
  EXPECT_EQ(hold.bytes(), HeldBytes(out.requests[0]) + 1);
  hold.Resize((1 << 20) - 1000);
  const auto problem = ParseApiRequest(kText, body, limits, out);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, ApiCode::kUnavailable);
  EXPECT_GT(problem->retry_after_ms, 0u);
}

// Prompts × stop strings × biases: each prompt's request has a copy of all wishes.
TEST(ApiRequest, CopiesForManyPromptsAreChargedBeforeTheyAreMade) {
  std::string body = R"({"max_tokens":1,"prompt":[)";
  for (int i = 0; i < 1024; ++i) body += i > 0 ? ",[1]" : "[1]";
  body += R"(],"stop":[)";
  for (int i = 0; i < 16; ++i) body += (i > 0 ? ",\"" : "\"") + std::string(256, 'x') + "\"";
  body += R"(],"allowed_token_ids":[0)";
  for (int i = 1; i < 4096; ++i) body += "," + std::to_string(i);
  body += "]}";
  ASSERT_LT(body.size(), 40'000u);
  for (const size_t limit : {size_t{16} << 20, size_t{1} << 30}) {
    const auto account = std::make_shared<MemoryAccount>(limit);
    MemoryHold hold(account);
    RequestLimits limits;
    limits.hold = &hold;
    ApiRequest out;
    const auto problem = ParseApiRequest(kText, body, limits, out);
    if (limit == size_t{1} << 30) {
      EXPECT_FALSE(problem.has_value());
      EXPECT_EQ(out.requests.size(), 1024u);
      continue;
    }
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->code, ApiCode::kUnavailable);
    EXPECT_TRUE(out.requests.empty()) << "nothing is built first";
  }
}

TEST(ApiRequest, ResumeIsRead) {
  const ApiRequest r =
      MustParse(kText, R"({"prompt":"x","resume":{"seed":5,"created":9,"model_id":"m",
    "outputs":[{"token_ids":[1,2]}]}})");
  ASSERT_TRUE(r.requests[0].resume.has_value());
  EXPECT_EQ(r.requests[0].resume->seed, 5u);
  EXPECT_EQ(r.requests[0].resume->created, 9);
  EXPECT_EQ(r.requests[0].resume->outputs[0], (std::vector<TokenId>{1, 2}));
}

TEST(ApiRequest, Timeouts) {
  EXPECT_EQ(ParseTimeoutMs("2.5", 1000), 2500u);
  EXPECT_EQ(ParseTimeoutMs("300ms", 1000), 300u);
  EXPECT_EQ(ParseTimeoutMs("2m", 1000), 120'000u);
  EXPECT_EQ(ParseTimeoutMs("1500", 1), 1500u);
  for (const char* bad : {"", "x", "-1", "0", "nan", "inf", "1e9", "1h", "99999999"}) {
    EXPECT_FALSE(ParseTimeoutMs(bad, 1000).has_value()) << bad;
  }
}

TEST(ApiRequest, TokenizeAndDetokenizeBodies) {
  TokenizeBody tokenize;
  EXPECT_FALSE(
      ParseTokenizeBody(
          R"({"model":"m","prompt":"x","add_special_tokens":false,"return_token_strs":true})",
          tokenize)
          .has_value());
  EXPECT_EQ(tokenize.model, "m");
  EXPECT_TRUE(tokenize.return_token_strings);
  EXPECT_FALSE(std::get<TextPrompt>(tokenize.prompt).add_special_tokens);
  EXPECT_FALSE(
      ParseTokenizeBody(R"({"messages":[{"role":"user","content":"x"}]})", tokenize).has_value());
  EXPECT_TRUE(std::holds_alternative<ChatPrompt>(tokenize.prompt));
  EXPECT_EQ(ParseTokenizeBody("{}", tokenize)->param, "prompt");
  EXPECT_EQ(ParseTokenizeBody(R"({"prompt":["a"]})", tokenize)->param, "prompt");
  DetokenizeBody detokenize;
  EXPECT_FALSE(ParseDetokenizeBody(R"({"tokens":[65,66]})", detokenize).has_value());
  EXPECT_EQ(detokenize.ids, (std::vector<TokenId>{65, 66}));
  EXPECT_EQ(ParseDetokenizeBody("{}", detokenize)->param, "tokens");
  EXPECT_EQ(ParseDetokenizeBody(R"({"tokens":[-1]})", detokenize)->param, "tokens");
}

}  // namespace
}  // namespace quire
