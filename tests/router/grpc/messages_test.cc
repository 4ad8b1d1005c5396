#include "router/grpc/messages.h"

#include <gtest/gtest.h>

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
