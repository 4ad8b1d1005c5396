// Requests of the Open Inference Protocol: what is served arrives whole, what is not is refused by
// the name of its tensor, parameter or sampling key.
#include "router/oip/infer_request.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "router/grpc/oip/oip_messages.h"

namespace quire::oip {
namespace {

using Message = inference::ModelInferRequest;
using Contents = inference::InferTensorContents;

std::string RawString(const std::string& text) {
  std::string raw;
  for (int i = 0; i < 4; ++i) raw += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return raw + text;
}

Contents& Add(Message& message, const std::string& name, const std::string& datatype,
              std::vector<int64_t> shape = {1}) {
  auto& input = *message.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  for (const int64_t n : shape) input.add_shape(n);
  return *input.mutable_contents();
}

Message Prompted() {
  Message message;
  message.set_model_name("m");
  message.set_id("7");
  Add(message, "text_input", "BYTES").add_bytes_contents("x");
  return message;
}

Message WithKeys(const std::string& json) {
  Message message = Prompted();
  Add(message, "sampling_parameters", "BYTES").add_bytes_contents(json);
  return message;
}

std::optional<ApiError> Read(const Message& message, InferRequest& out,
                             Answering answering = Answering::kStream) {
  out = {};
  return FromProto(message, answering, {}, out);
}

TEST(OipRequest, TypedContentsArriveWhole) {
  Message message = Prompted();
  message.set_model_version("1");
  Add(message, "stream", "BOOL", {1, 1}).add_bool_contents(false);
  Add(message, "exclude_input_in_output", "BOOL").add_bool_contents(false);
  Add(message, "return_num_output_tokens", "BOOL").add_bool_contents(true);
  Add(message, "sampling_parameters", "BYTES")
      .add_bytes_contents(R"({"temperature": 0.5, "max_tokens": 9, "stop": ["a"], "seed": 3,
                              "min_p": null, "detokenize": true, "best_of": 1,
                              "logit_bias": {"4": 1.5}})");
  auto& parameters = *message.mutable_parameters();
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  parameters["priority"].set_uint64_param(2);
  parameters["timeout"].set_int64_param(1'500'000);
  parameters["top_k"].set_int64_param(5);
  parameters["binary_data_output"].set_bool_param(false);
  InferRequest out;
  const auto problem = Read(message, out);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_EQ(out.id, "7");
  EXPECT_EQ(out.generate.model, "m");
  EXPECT_EQ(std::get<TextPrompt>(out.generate.prompt).text, "x");
  EXPECT_EQ(PromptField(out.generate.prompt), "text_input");
  EXPECT_FALSE(out.stream);
  EXPECT_FALSE(out.generate.streaming);
  EXPECT_TRUE(out.generate.echo);
  EXPECT_TRUE(out.wanted.output_count);
  EXPECT_TRUE(out.empty_final);
  EXPECT_FALSE(out.raw_outputs);
  EXPECT_EQ(out.generate.priority, 2);
  EXPECT_EQ(out.generate.timeout_ms, 1500u);
  const SamplingOptions& sampling = out.generate.sampling;
  EXPECT_EQ(*sampling.temperature, 0.5f);
  EXPECT_EQ(*sampling.max_tokens, 9);
  EXPECT_EQ(*sampling.top_k, 5);
  EXPECT_EQ(*sampling.seed, 3u);
  EXPECT_FALSE(sampling.min_p);
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.logit_bias.at(4), 1.5f);
}

TEST(OipRequest, RawContentsArriveWhole) {
  Message message;
  message.set_model_name("m");
  Add(message, "input_ids", "INT64", {1, 2});
  Add(message, "stream", "BOOL");
  Add(message, "sampling_parameters", "BYTES");
  message.add_raw_input_contents(std::string("\x05\0\0\0\0\0\0\0\x01\x01\0\0\0\0\0\0", 16));
  message.add_raw_input_contents(std::string("\x01", 1));
  message.add_raw_input_contents(RawString(R"({"temperature": "0.1", "ignore_eos": "True"})"));
  InferRequest out;
  const auto problem = Read(message, out);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_EQ(std::get<TokenPrompt>(out.generate.prompt).ids, (std::vector<TokenId>{5, 257}));
  EXPECT_TRUE(out.stream);
  EXPECT_TRUE(out.raw_outputs);
  EXPECT_EQ(*out.generate.sampling.temperature, 0.1f);
  EXPECT_TRUE(out.generate.sampling.ignore_eos);
}

TEST(OipRequest, TokenIdsOfEveryIntegerType) {
  struct Case {
    const char* datatype;
    std::string raw;
  };
  const Case cases[] = {{"INT8", "\x07"},
                        {"INT16", std::string("\x07\0", 2)},
                        {"INT32", std::string("\x07\0\0\0", 4)},
                        {"INT64", std::string("\x07\0\0\0\0\0\0\0", 8)},
                        {"UINT8", "\x07"},
                        {"UINT16", std::string("\x07\0", 2)},
                        {"UINT32", std::string("\x07\0\0\0", 4)},
                        {"UINT64", std::string("\x07\0\0\0\0\0\0\0", 8)}};
  for (const Case& one : cases) {
    Message message;
    message.set_model_name("m");
    Add(message, "input_ids", one.datatype);
    message.add_raw_input_contents(one.raw);
    InferRequest out;
    ASSERT_FALSE(Read(message, out)) << one.datatype;
    EXPECT_EQ(std::get<TokenPrompt>(out.generate.prompt).ids, std::vector<TokenId>{7});
  }
  Message message;
  message.set_model_name("m");
  Add(message, "input_ids", "UINT64", {2}).add_uint64_contents(3);
  message.mutable_inputs(0)->mutable_contents()->add_uint64_contents(4);
  InferRequest out;
  ASSERT_FALSE(Read(message, out));
  EXPECT_EQ(std::get<TokenPrompt>(out.generate.prompt).ids, (std::vector<TokenId>{3, 4}));
}

TEST(OipRequest, OutputsMayBeNamed) {
  Message message = Prompted();
  message.add_outputs()->set_name("text_output");
  message.add_outputs()->set_name("cumulative_logprob");
  InferRequest out;
  ASSERT_FALSE(Read(message, out));
  EXPECT_TRUE(out.wanted.text && out.wanted.cumulative_logprob);
  EXPECT_FALSE(out.wanted.ids || out.wanted.finish_reason);
  EXPECT_EQ(out.generate.sampling.logprobs, 0);
}

struct Spoilt {
  const char* name;  // that the refusal names
  std::function<void(Message&)> spoil;
};

void ExpectRefused(const std::vector<Spoilt>& cases) {
  for (const Spoilt& one : cases) {
    Message message = Prompted();
    one.spoil(message);
    InferRequest out;
    const auto problem = Read(message, out);
    ASSERT_TRUE(problem) << one.name << "\n" << message.ShortDebugString();
    EXPECT_EQ(problem->code, ApiCode::kInvalidArgument) << problem->message;
    EXPECT_EQ(problem->param, one.name) << problem->message;
    EXPECT_NE(problem->message.find(one.name), std::string::npos) << problem->message;
  }
}

TEST(OipRequest, BadTensorsAreNamed) {
  const auto first = [](Message& m) { return m.mutable_inputs(0); };
  ExpectRefused({
      {"text_input", [](Message& m) { m.clear_inputs(); }},
      {"inputs", [](Message& m) { Add(m, "text", "BYTES").add_bytes_contents("x"); }},
      {"inputs",
       [](Message& m) {
         for (int i = 0; i < 1000; ++i) Add(m, "text_input", "BYTES");
       }},
      {"text_input", [](Message& m) { Add(m, "text_input", "BYTES").add_bytes_contents("y"); }},
      {"input_ids", [](Message& m) { Add(m, "input_ids", "INT32").add_int_contents(1); }},
      {"text_input", [=](Message& m) { first(m)->set_datatype("INT32"); }},
      {"text_input", [=](Message& m) { first(m)->set_datatype("STRING"); }},
      {"text_input", [=](Message& m) { first(m)->clear_shape(); }},
      {"text_input", [=](Message& m) { first(m)->set_shape(0, 2); }},
      {"text_input", [=](Message& m) { first(m)->set_shape(0, -1); }},
      {"text_input",
       [=](Message& m) {
         first(m)->set_shape(0, 2);
         first(m)->add_shape(1);
         first(m)->mutable_contents()->add_bytes_contents("y");
       }},
      {"text_input", [=](Message& m) { first(m)->mutable_contents()->add_bytes_contents("y"); }},
      {"text_input", [=](Message& m) { first(m)->clear_contents(); }},
      {"text_input", [=](Message& m) { first(m)->mutable_contents()->add_int_contents(1); }},
      {"text_input", [=](Message& m) { first(m)->mutable_contents()->set_bytes_contents(0, ""); }},
      {"text_input",
       [=](Message& m) { first(m)->mutable_contents()->set_bytes_contents(0, "\xFF"); }},
      {"text_input",
       [=](Message& m) {
         (*first(m)->mutable_parameters())["shared_memory_region"].set_string_param("r");
       }},
      {"stream", [](Message& m) { Add(m, "stream", "BOOL"); }},
      {"stream", [](Message& m) { Add(m, "stream", "BYTES").add_bytes_contents("1"); }},
      {"stream",
       [](Message& m) {
         Add(m, "stream", "BOOL", {1, 2}).add_bool_contents(true);
       }},
      {"stream", [](Message& m) { Add(m, "stream", "BOOL").add_int_contents(1); }},
      {"sampling_parameters",
       [](Message& m) { Add(m, "sampling_parameters", "BYTES").add_bytes_contents("{"); }},
      {"sampling_parameters",
       [](Message& m) { Add(m, "sampling_parameters", "BYTES").add_bytes_contents("[]"); }},
      {"outputs", [](Message& m) { m.add_outputs()->set_name("logits"); }},
      {"text_output",
       [](Message& m) {
         auto& output = *m.add_outputs();
         output.set_name("text_output");
         (*output.mutable_parameters())["classification"].set_int64_param(2);
       }},
      {"model_name", [](Message& m) { m.clear_model_name(); }},
      {"model_version", [](Message& m) { m.set_model_version("2"); }},
      {"id", [](Message& m) { m.set_id(std::string(1025, 'i')); }},
  });
}

TEST(OipRequest, BadTokenIdsAreNamed) {
  const auto ids = [](const char* datatype, std::vector<int64_t> shape, auto fill) {
    return [=](Message& m) {
      m.clear_inputs();
      fill(Add(m, "input_ids", datatype, shape));
    };
  };
  ExpectRefused({
      {"input_ids", ids("INT32", {1}, [](Contents& c) { c.add_int_contents(-1); })},
      {"input_ids", ids("INT64", {1}, [](Contents& c) { c.add_int64_contents(1ll << 31); })},
      {"input_ids", ids("UINT64", {1}, [](Contents& c) { c.add_uint64_contents(~0ull); })},
      {"input_ids", ids("INT64", {1}, [](Contents& c) { c.add_int_contents(1); })},
      {"input_ids", ids("FP32", {1}, [](Contents& c) { c.add_fp32_contents(1); })},
      {"input_ids", ids("INT32", {2}, [](Contents& c) { c.add_int_contents(1); })},
      {"input_ids", ids("INT32", {0}, [](Contents&) {})},
      {"input_ids", ids("INT32", {2, 1}, [](Contents& c) { c.add_int_contents(1); })},
      {"input_ids", ids("INT32", {1ll << 62}, [](Contents& c) { c.add_int_contents(1); })},
  });
}

TEST(OipRequest, BadRawContentsAreNamed) {
  ExpectRefused({
      {"text_input", [](Message& m) { m.add_raw_input_contents(RawString("x")); }},  // beside typed
      {"raw_input_contents",
       [](Message& m) {
         m.mutable_inputs(0)->clear_contents();
         for (int i = 0; i < 2; ++i) m.add_raw_input_contents(RawString("x"));
       }},
      {"stream",  // the first has its contents, the second none
       [](Message& m) {
         m.mutable_inputs(0)->clear_contents();
         m.add_raw_input_contents(RawString("x"));
         Add(m, "stream", "BOOL");
       }},
  });
  const std::string wrong[] = {"", "\x01", std::string("\x02\0\0\0x", 5),
                               std::string("\x01\0\0\0xy", 6), std::string("\xFF\xFF\xFF\xFFx", 5)};
  for (const std::string& raw : wrong) {
    ExpectRefused({{"text_input", [&](Message& m) {
                      m.mutable_inputs(0)->clear_contents();
                      m.add_raw_input_contents(raw);
                    }}});
  }
  for (const std::string& raw : {std::string(), std::string("ab"), std::string("\1\0\0\0\0", 5)}) {
    ExpectRefused({{"input_ids", [&](Message& m) {
                      m.clear_inputs();
                      Add(m, "input_ids", "INT32");
                      m.add_raw_input_contents(raw);
                    }}});
  }
}

TEST(OipRequest, SamplingKeysAreVllmsAndUnknownOnesAreRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"temprature": 1})", "sampling_parameters"},
      {R"({"use_beam_search": true})", "sampling_parameters"},
      {R"({"unheard_of": null})", "sampling_parameters"},
      {R"({"n": 2})", "n"},
      {R"({"best_of": 2})", "best_of"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": "warm"})", "temperature"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"stop": [""]})", "stop"},
      {R"({"structured_outputs": {"json": 3}})", "structured_outputs.json"},
      {R"({"guided_decoding": {"regex": 3}})", "guided_decoding.regex"},
      {R"({"guided_json": {}, "guided_regex": "a"})", "guided_regex"},
      {R"({"lora_name": "a"})", "lora_name"},
      {R"({"truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
  };
  for (const auto& [json, name] : refused) {
    InferRequest out;
    const auto problem = Read(WithKeys(json), out);
    ASSERT_TRUE(problem) << json;
    EXPECT_EQ(problem->param, name) << problem->message;
  }
  InferRequest out;
  const auto problem =
      Read(WithKeys(R"({"n": 1, "best_of": 1, "presence_penalty": 0.1, "frequency_penalty": 0.1,
        "repetition_penalty": 1.1, "temperature": 1, "top_p": 0.9, "top_k": 3, "min_p": 0.1,
        "seed": 1, "stop": "a", "stop_token_ids": [1], "bad_words": ["b"],
        "include_stop_str_in_output": true, "ignore_eos": true, "max_tokens": 4, "min_tokens": 1,
        "logprobs": 1, "prompt_logprobs": null, "detokenize": true, "skip_special_tokens": true,
        "spaces_between_special_tokens": true, "logits_processors": null,
        "truncate_prompt_tokens": null, "output_kind": 0, "structured_outputs": null,
        "logit_bias": null, "allowed_token_ids": [1], "extra_args": null})"),
           out);
  EXPECT_FALSE(problem) << problem->message;
}

TEST(OipRequest, AConstraintMayBeAKeyOrAParameterAndComesOnce) {
  InferRequest out;
  ASSERT_FALSE(Read(WithKeys(R"({"structured_outputs": {"json": {"b": 1, "a": 2}}})"), out));
  EXPECT_EQ(out.generate.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(out.generate.constraint.source, R"({"b":1,"a":2})");
  EXPECT_EQ(out.generate.constraint_field, "structured_outputs.json");
  // Clients of Triton's vLLM backend write values as strings; an expression stays what it is.
  const auto with = [](const char* name, const char* text) {
    Message message = Prompted();
    (*message.mutable_parameters())[name].set_string_param(text);
    return message;
  };
  ASSERT_FALSE(Read(with("guided_regex", "12"), out));
  EXPECT_EQ(out.generate.constraint.kind, ConstraintKind::kRegex);
  EXPECT_EQ(out.generate.constraint.source, "12");
  ASSERT_FALSE(Read(with("response_format", R"({"type": "json_object"})"), out));
  EXPECT_EQ(out.generate.constraint.kind, ConstraintKind::kJsonObject);
  ASSERT_FALSE(Read(with("grammar", R"(root ::= "a")"), out));
  EXPECT_EQ(out.generate.constraint.kind, ConstraintKind::kGrammar);
  Message twice = WithKeys(R"({"guided_regex": "a"})");
  (*twice.mutable_parameters())["guided_json"].set_string_param("{}");
  const auto problem = Read(twice, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "guided_json");
  EXPECT_NE(problem->message.find("guided_regex"), std::string::npos) << problem->message;
}

TEST(OipRequest, ParametersAreNamed) {
  const auto set = [](const char* name, auto put) {
    return [=](Message& m) { put((*m.mutable_parameters())[name]); };
  };
  ExpectRefused({
      {"sampling_parameters", set("unheard_of", [](auto& p) { p.set_bool_param(true); })},
      {"sequence_id", set("sequence_id", [](auto& p) { p.set_int64_param(4); })},
      {"sequence_start", set("sequence_start", [](auto& p) { p.set_bool_param(true); })},
      {"timeout", set("timeout", [](auto& p) { p.set_int64_param(-1); })},
      {"timeout", set("timeout", [](auto& p) { p.set_string_param("1s"); })},
      {"priority", set("priority", [](auto& p) { p.set_uint64_param(~0ull); })},
      {"triton_enable_empty_final_response",
       set("triton_enable_empty_final_response", [](auto& p) { p.set_int64_param(1); })},
      {"max_tokens", set("max_tokens", [](auto& p) { p.set_int64_param(-4); })},
  });
  Message message = Prompted();
  (*message.mutable_parameters())["sequence_id"].set_int64_param(0);
  (*message.mutable_parameters())["sequence_start"].set_bool_param(false);
  InferRequest out;
  EXPECT_FALSE(Read(message, out));
}

TEST(OipRequest, OneAnswerIsNoStream) {
  Message message = Prompted();
  InferRequest out;
  ASSERT_FALSE(Read(message, out, Answering::kOnce));
  EXPECT_FALSE(out.stream);
  Add(message, "stream", "BOOL").add_bool_contents(true);
  const auto problem = Read(message, out, Answering::kOnce);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "stream");
}

TEST(OipRequest, LimitsAreTheRouters) {
  Metrics metrics;
  LimitCounters counters(metrics);
  RequestLimits limits;
  limits.max_json_depth = 4;
  limits.max_prompt_bytes = 3;
  limits.counters = &counters;
  InferRequest out;
  auto problem =
      FromProto(WithKeys(R"({"extra_args": [[[[[]]]]]})"), Answering::kOnce, limits, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "sampling_parameters");
  EXPECT_EQ(counters.json_depth.value(), 1u);
  Message message = Prompted();
  message.mutable_inputs(0)->mutable_contents()->set_bytes_contents(0, "long");
  problem = FromProto(message, Answering::kOnce, limits, out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ApiCode::kTooLarge);
  EXPECT_EQ(problem->param, "text_input");
  EXPECT_EQ(counters.prompt_bytes.value(), 1u);
}

}  // namespace
}  // namespace quire::oip
