#include "router/grpc/messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace quire {
namespace {

v1::GenerateRequest Prompted() {
  v1::GenerateRequest request;
  request.set_text("x");
  return request;
}

TEST(GrpcMessages, GenerateArrivesWhole) {
  v1::GenerateRequest in = Prompted();
  in.set_model("m");
  in.set_add_special_tokens(false);
  in.set_priority(-2);
  in.set_cache_salt("s");
  in.set_omit_text(true);
  in.set_truncate_prompt_tokens(5);
  in.set_prediction("p");
  v1::SamplingOptions& s = *in.mutable_sampling();
  s.set_temperature(0.5f);
  s.set_top_k(4);
  s.set_seed(9);
  s.set_max_tokens(7);
  s.add_stop("end");
  s.add_stop_token_ids(3);
  (*s.mutable_logit_bias())[5] = 1.5f;
  s.set_skip_special_tokens(false);
  s.set_n(2);
  in.mutable_resume()->set_model_id("id");
  in.mutable_resume()->add_outputs()->add_ids(8);
  GenerateRequest out;
  ASSERT_FALSE(FromProto(in, out).has_value());
  EXPECT_EQ(out.model, "m");
  EXPECT_FALSE(std::get<TextPrompt>(out.prompt).add_special_tokens);
  EXPECT_EQ(out.priority, -2);
  EXPECT_FALSE(out.want_text);
  EXPECT_TRUE(out.streaming);
  EXPECT_EQ(*out.truncate_prompt_tokens, 5);
  EXPECT_EQ(out.prediction, "p");
  EXPECT_FLOAT_EQ(*out.sampling.temperature, 0.5f);
  EXPECT_FALSE(out.sampling.top_p.has_value());
  EXPECT_EQ(*out.sampling.seed, 9u);
  EXPECT_EQ(out.sampling.stop[0], "end");
  EXPECT_FLOAT_EQ(out.sampling.logit_bias.at(5), 1.5f);
  EXPECT_FALSE(out.sampling.skip_special_tokens);
  EXPECT_EQ(out.sampling.n, 2);
  EXPECT_EQ(out.resume->outputs[0], std::vector<TokenId>{8});
}

TEST(GrpcMessages, ChatBecomesOpenAisMessages) {
  v1::ChatRequest in;
  auto* message = in.add_messages();
  message->set_role("user");
  message->set_content("say \"hi\"");
  message = in.add_messages();
  message->set_role("tool");
  message->set_content("4");
  message->set_tool_call_id("c1");
  message->set_name("add");
  message = in.add_messages();
  message->set_role("assistant");
  message->set_tool_calls_json(R"([ {"id": "c1"} ])");
  in.set_template_kwargs_json(R"({"thinking": false})");
  in.set_add_generation_prompt(false);
  GenerateRequest out;
  ASSERT_FALSE(FromProto(in, out).has_value());
  const ChatPrompt& chat = std::get<ChatPrompt>(out.prompt);
  EXPECT_EQ(chat.messages_json, R"([{"role":"user","content":"say \"hi\""},)"
                                R"({"role":"tool","content":"4","name":"add","tool_call_id":"c1"},)"
                                R"({"role":"assistant","content":"","tool_calls":[{"id":"c1"}]}])");
  EXPECT_EQ(chat.template_kwargs_json, R"({"thinking":false})");
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_TRUE(out.chat_defaults);
}

TEST(GrpcMessages, AResponseFormatBecomesAConstraint) {
  using Format = v1::ResponseFormat;
  struct Case {
    std::function<void(Format&)> set;
    Constraint constraint;
    std::string field;
  };
  using K = ConstraintKind;
  const Case cases[] = {
      {[](Format& f) { f.set_json_schema(R"({ "b": 1, "a": 2 })"); },
       {K::kJsonSchema, R"({"b":1,"a":2})", "", false, false},
       "response_format.json_schema"},
      {[](Format& f) { f.set_json_object(true); },
       {K::kJsonObject, "", "", false, false},
       "response_format.json_object"},
      {[](Format& f) { f.set_regex("a+"); },
       {K::kRegex, "a+", "", false, false},
       "response_format.regex"},
      {[](Format& f) {
         f.mutable_choice()->add_texts("y\"s");
         f.mutable_choice()->add_texts("no");
       },
       {K::kChoice, R"(["y\"s","no"])", "", false, false},
       "response_format.choice"},
      {[](Format& f) { f.set_grammar("root ::= \"a\""); },
       {K::kGrammar, "root ::= \"a\"", "", false, false},
       "response_format.grammar"},
      {[](Format& f) { f.set_grammar("%llguidance {}\nstart: \"a\""); },
       {K::kLark, "%llguidance {}\nstart: \"a\"", "", false, false},
       "response_format.grammar"},
      {[](Format& f) { f.set_lark("start: \"a\""); },
       {K::kLark, "start: \"a\"", "", false, false},
       "response_format.lark"},
      {[](Format& f) { f.set_structural_tag(R"({"format": {}})"); },
       {K::kStructuralTag, R"({"format":{}})", "", false, false},
       "response_format.structural_tag"},
      {[](Format& f) {
         f.set_json_schema("{}");
         f.set_disable_any_whitespace(true);
         f.set_disable_additional_properties(true);
       },
       {K::kJsonSchema, "{}", "", true, true},
       "response_format.json_schema"},
      {[](Format& f) {
         f.set_json_schema("{}");
         f.set_whitespace_pattern(" ?");
       },
       {K::kJsonSchema, "{}", " ?", false, false},
       "response_format.json_schema"},
      {[](Format&) {}, {}, "response_format"},
      {[](Format& f) { f.set_json_object(false); }, {}, "response_format"},
  };
  for (const Case& each : cases) {
    v1::GenerateRequest generate = Prompted();
    each.set(*generate.mutable_response_format());
    v1::ChatRequest chat;
    chat.add_messages()->set_role("user");
    *chat.mutable_response_format() = generate.response_format();
    GenerateRequest of_generate, of_chat;
    ASSERT_FALSE(FromProto(generate, of_generate)) << each.field;
    ASSERT_FALSE(FromProto(chat, of_chat)) << each.field;
    for (const GenerateRequest& out : {of_generate, of_chat}) {
      EXPECT_EQ(out.constraint, each.constraint) << out.constraint.source;
      EXPECT_EQ(out.constraint_field, each.field);
    }
  }
}

TEST(GrpcMessages, ABadResponseFormatNamesTheField) {
  using Format = v1::ResponseFormat;
  const std::pair<std::string, std::function<void(Format&)>> cases[] = {
      {"json_schema", [](Format& f) { f.set_json_schema("{"); }},
      {"json_schema", [](Format& f) { f.set_json_schema("true"); }},
      {"json_schema", [](Format& f) { f.set_json_schema(""); }},
      {"json_schema",
       [](Format& f) { f.set_json_schema(std::string(kMaxConstraintBytes + 1, ' ')); }},
      {"regex", [](Format& f) { f.set_regex(""); }},
      {"regex", [](Format& f) { f.set_regex(std::string(kMaxConstraintBytes + 1, 'a')); }},
      {"choice", [](Format& f) { f.mutable_choice(); }},
      {"grammar", [](Format& f) { f.set_grammar(""); }},
      {"lark", [](Format& f) { f.set_lark(""); }},
      {"structural_tag", [](Format& f) { f.set_structural_tag("[]"); }},
      {"whitespace_pattern",
       [](Format& f) {
         f.set_json_schema("{}");
         f.set_whitespace_pattern(std::string(kMaxWhitespacePatternBytes + 1, ' '));
       }},
      {"whitespace_pattern", [](Format& f) { f.set_whitespace_pattern(" "); }},
      {"disable_any_whitespace",
       [](Format& f) {
         f.set_regex("a");
         f.set_disable_any_whitespace(true);
       }},
      {"disable_additional_properties",
       [](Format& f) { f.set_disable_additional_properties(true); }},
  };
  for (const auto& [field, set] : cases) {
    v1::GenerateRequest in = Prompted();
    set(*in.mutable_response_format());
    GenerateRequest out;
    const auto problem = FromProto(in, out);
    ASSERT_TRUE(problem) << field;
    EXPECT_EQ(problem->param, "response_format." + field) << problem->message;
    EXPECT_EQ(problem->code, ApiCode::kInvalidArgument);
  }
}

TEST(GrpcMessages, BadInputNamesTheField) {
  using Spoil = void (*)(v1::GenerateRequest&);
  const std::pair<const char*, Spoil> cases[] = {
      {"prompt", [](v1::GenerateRequest& r) { r.clear_prompt(); }},
      {"text", [](v1::GenerateRequest& r) { r.set_text(""); }},
      {"token_ids", [](v1::GenerateRequest& r) { r.mutable_token_ids(); }},
      {"token_ids", [](v1::GenerateRequest& r) { r.mutable_token_ids()->add_ids(-1); }},
      {"temperature", [](v1::GenerateRequest& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"temperature",
       [](v1::GenerateRequest& r) {
         r.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
       }},
      {"top_p", [](v1::GenerateRequest& r) { r.mutable_sampling()->set_top_p(0); }},
      {"max_tokens", [](v1::GenerateRequest& r) { r.mutable_sampling()->set_max_tokens(0); }},
      {"n", [](v1::GenerateRequest& r) { r.mutable_sampling()->set_n(0); }},
      {"stop", [](v1::GenerateRequest& r) { r.mutable_sampling()->add_stop(""); }},
      {"logprobs", [](v1::GenerateRequest& r) { r.mutable_sampling()->set_logprobs(21); }},
      {"logit_bias",
       [](v1::GenerateRequest& r) { (*r.mutable_sampling()->mutable_logit_bias())[-1] = 1; }},
      {"truncate_prompt_tokens", [](v1::GenerateRequest& r) { r.set_truncate_prompt_tokens(-2); }},
      {"resume.model_id", [](v1::GenerateRequest& r) { r.mutable_resume(); }},
  };
  for (const auto& [field, spoil] : cases) {
    v1::GenerateRequest in = Prompted();
    spoil(in);
    GenerateRequest out;
    const auto problem = FromProto(in, out);
    ASSERT_TRUE(problem.has_value()) << field;
    EXPECT_EQ(problem->param, field);
    const absl::Status status = ToStatus(*problem);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(field), std::string::npos);
  }
}

TEST(GrpcMessages, BadChatsNameTheField) {
  using Spoil = void (*)(v1::ChatRequest&);
  const std::pair<const char*, Spoil> cases[] = {
      {"messages", [](v1::ChatRequest& r) { r.clear_messages(); }},
      {"messages[0].role", [](v1::ChatRequest& r) { r.mutable_messages(0)->clear_role(); }},
      {"messages[0].tool_calls_json",
       [](v1::ChatRequest& r) { r.mutable_messages(0)->set_tool_calls_json("{}"); }},
      {"tools_json", [](v1::ChatRequest& r) { r.set_tools_json("nope"); }},
      {"template_kwargs_json", [](v1::ChatRequest& r) { r.set_template_kwargs_json("[]"); }},
  };
  for (const auto& [field, spoil] : cases) {
    v1::ChatRequest in;
    in.add_messages()->set_role("user");
    spoil(in);
    GenerateRequest out;
    const auto problem = FromProto(in, out);
    ASSERT_TRUE(problem.has_value()) << field;
    EXPECT_EQ(problem->param, field);
  }
}

// An error that comes later blames the field that its client knows.
TEST(GrpcMessages, APromptRemembersItsField) {
  v1::GenerateRequest text, ids;
  text.set_text("x");
  ids.mutable_token_ids()->add_ids(1);
  for (const auto& [in, field] : {std::pair{text, "text"}, {ids, "token_ids"}}) {
    GenerateRequest out;
    ASSERT_FALSE(FromProto(in, out).has_value());
    EXPECT_EQ(PromptField(out.prompt), field);
  }
  v1::TokenizeRequest tokenize;
  tokenize.set_text("x");
  Prompt prompt;
  ASSERT_FALSE(FromProto(tokenize, prompt).has_value());
  EXPECT_EQ(PromptField(prompt), "text");
}

TEST(GrpcMessages, DeltasJoin) {
  v1::Delta out;
  Delta delta;
  delta.choice = 1;
  delta.first_index = 4;
  delta.text = "a";
  delta.ids = {7};
  AppendToProto(delta, out);
  delta.first_index = 5;
  delta.text = "b";
  delta.ids = {8, 9};
  AppendToProto(delta, out);
  EXPECT_EQ(out.choice(), 1u);
  EXPECT_EQ(out.first_index(), 4u);
  EXPECT_EQ(out.text(), "ab");
  EXPECT_EQ(out.token_ids_size(), 3);
}

TEST(GrpcMessages, PiecesOfCallsJoinAndKeepTheirOrder) {
  v1::Delta out;
  Delta delta;
  delta.reasoning = "t";
  delta.text = "a";
  delta.tool_calls = {{0, "call_1", "f", ""}, {0, "", "", "{"}};
  EXPECT_TRUE(MayFollow(delta, out));
  AppendToProto(delta, out);
  Delta more;
  more.tool_calls = {{0, "", "", "}"}, {1, "call_2", "g", ""}};
  EXPECT_TRUE(MayFollow(more, out));
  AppendToProto(more, out);
  ASSERT_EQ(out.tool_calls_size(), 2);
  EXPECT_EQ(out.tool_calls(0).arguments(), "{}");
  EXPECT_EQ(out.tool_calls(0).id(), "call_1");
  EXPECT_EQ(out.tool_calls(1).name(), "g");
  EXPECT_EQ(out.reasoning(), "t");
  Delta text;
  text.text = "b";
  EXPECT_FALSE(MayFollow(text, out));
  Delta thought;
  thought.reasoning = "u";
  v1::Delta only_text;
  only_text.set_text("a");
  EXPECT_FALSE(MayFollow(thought, only_text));
  EXPECT_TRUE(MayFollow(text, only_text));
}

TEST(GrpcMessages, ToolsAndThoughtsArrive) {
  v1::ChatRequest in;
  in.add_messages()->set_role("user");
  in.set_tools_json(R"([{"type":"function","function":{"name":"f"}}])");
  in.mutable_tool_choice()->set_function("f");
  in.set_parallel_tool_calls(false);
  in.set_enable_thinking(false);
  in.set_thinking_token_budget(99);
  in.set_reasoning_effort("low");
  GenerateRequest out;
  ASSERT_FALSE(FromProto(in, out).has_value());
  EXPECT_EQ(out.tool_use.choice, ToolChoice::kNamed);
  EXPECT_EQ(out.tool_use.name, "f");
  EXPECT_FALSE(out.tool_use.parallel);
  EXPECT_TRUE(out.read_answer);
  EXPECT_EQ(out.thinking.enabled, false);
  EXPECT_EQ(out.thinking.effort, "low");
  EXPECT_EQ(out.thinking.budget, 99u);
  in.mutable_tool_choice()->set_function("g");
  EXPECT_EQ(FromProto(in, out)->param, "tool_choice");
  in.mutable_tool_choice()->set_mode(v1::ToolChoice::REQUIRED);
  EXPECT_FALSE(FromProto(in, out).has_value());
  in.clear_tools_json();
  EXPECT_EQ(FromProto(in, out)->param, "tool_choice");
  in.clear_tool_choice();
  in.set_reasoning_effort("much");
  EXPECT_EQ(FromProto(in, out)->param, "reasoning_effort");
}

TEST(GrpcMessages, StatusesKeepTheirMeaning) {
  EXPECT_EQ(ToStatus({ApiCode::kNotFound, "m", "model", 0}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ToStatus({ApiCode::kConflict, "m", "", 0}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ToStatus({ApiCode::kRateLimited, "m", "", 0}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ToStatus({ApiCode::kInvalidArgument, "too long", "prompt", 0}).message(),
            "prompt: too long");
  const ApiError reasoned{ApiCode::kInvalidArgument, "text: too long", "text", 0, "some_reason"};
  EXPECT_EQ(ToStatus(reasoned).message(), "some_reason: text: too long");
}

}  // namespace
}  // namespace quire
