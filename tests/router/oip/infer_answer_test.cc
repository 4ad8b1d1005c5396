// Answers of the Open Inference Protocol: outputs are told once and in order, in both encodings.
#include "router/oip/infer_answer.h"

#include <gtest/gtest.h>

#include "router/grpc/oip/oip_messages.h"

namespace quire::oip {
namespace {

Delta Step(uint64_t index, const std::string& text, std::vector<TokenId> ids) {
  Delta delta;
  delta.first_index = index;
  delta.text = text;
  delta.ids = std::move(ids);
  for (const TokenId id : delta.ids) {
    TokenLogprob& token = delta.logprobs.emplace_back();
    token.id = id;
    token.token = "t\"";
    token.logprob = -0.5f;
    token.top.resize(2);
    token.top[0].id = 9;
    token.top[0].logprob = -1.5f;
  }
  return delta;
}

const OutputTensor* Find(const std::vector<OutputTensor>& outputs, std::string_view name) {
  for (const OutputTensor& output : outputs) {
    if (output.name == name) return &output;
  }
  return nullptr;
}

InferRequest Asking() {
  InferRequest request;
  request.model = "m";
  request.id = "i";
  request.generate.sampling.logprobs = 1;
  request.wanted = {true, true, true, true, true, true, true};
  return request;
}

TEST(OipAnswer, EachStepIsToldOnce) {
  InferAnswer answer(Asking());
  Started started;
  started.prompt_ids = {1, 2};
  started.prompt_text = "p";
  answer.Add(started);
  EXPECT_FALSE(answer.pending());
  answer.Add(Step(0, "a", {4}));
  EXPECT_TRUE(answer.pending());
  std::vector<OutputTensor> outputs = answer.Take();
  EXPECT_FALSE(answer.pending());
  EXPECT_EQ(std::get<OutputTensor::Strings>(Find(outputs, "text_output")->values)[0], "pa");
  EXPECT_EQ(std::get<OutputTensor::Ids>(Find(outputs, "output_ids")->values),
            (std::vector<TokenId>{4}));
  EXPECT_EQ(std::get<OutputTensor::Counts>(Find(outputs, "num_input_tokens")->values)[0], 2u);
  EXPECT_EQ(std::get<OutputTensor::Counts>(Find(outputs, "num_output_tokens")->values)[0], 1u);
  EXPECT_EQ(Find(outputs, "finish_reason"), nullptr);
  EXPECT_EQ(
      std::get<OutputTensor::Strings>(Find(outputs, "logprobs")->values)[0],
      R"([{"4":{"logprob":-0.5,"decoded_token":"t\""},"9":{"logprob":-1.5,"decoded_token":""}}])");
  answer.Add(Step(1, "b", {5, 6}));
  answer.Add(ChoiceEnd{0, "stop", {}, {}});
  outputs = answer.Take();
  EXPECT_EQ(std::get<OutputTensor::Strings>(Find(outputs, "text_output")->values)[0], "b");
  EXPECT_EQ(std::get<OutputTensor::Counts>(Find(outputs, "num_output_tokens")->values)[0], 2u);
  EXPECT_EQ(std::get<OutputTensor::Floats>(Find(outputs, "cumulative_logprob")->values)[0], -1.5f);
  EXPECT_EQ(std::get<OutputTensor::Strings>(Find(outputs, "finish_reason")->values)[0], "stop");
  EXPECT_EQ(answer.next_index(), 3u);
}

TEST(OipAnswer, RawAndTypedContentsSayTheSame) {
  InferRequest request = Asking();
  std::vector<OutputTensor> outputs;
  outputs.push_back({"text_output", OutputTensor::Strings{"ab"}});
  outputs.push_back({"output_ids", std::vector<TokenId>{1, 258}});
  outputs.push_back({"num_input_tokens", OutputTensor::Counts{3}});
  outputs.push_back({"cumulative_logprob", OutputTensor::Floats{-2.0f}});
  inference::ModelInferResponse raw;
  ToProto(request, outputs, raw);
  ASSERT_EQ(raw.raw_output_contents_size(), 4);
  EXPECT_EQ(raw.raw_output_contents(0), std::string("\2\0\0\0ab", 6));
  EXPECT_EQ(raw.raw_output_contents(1), std::string("\1\0\0\0\2\1\0\0", 8));
  EXPECT_EQ(raw.raw_output_contents(2), std::string("\3\0\0\0", 4));
  EXPECT_EQ(raw.raw_output_contents(3), std::string("\0\0\0\xC0", 4));
  EXPECT_EQ(raw.outputs(1).datatype(), "INT32");
  EXPECT_EQ(raw.outputs(1).shape(0), 2);
  request.raw_outputs = false;
  inference::ModelInferResponse typed;
  ToProto(request, outputs, typed);
  EXPECT_EQ(typed.raw_output_contents_size(), 0);
  EXPECT_EQ(typed.outputs(0).contents().bytes_contents(0), "ab");
  EXPECT_EQ(typed.outputs(1).contents().int_contents(1), 258);
  EXPECT_EQ(typed.outputs(2).contents().uint_contents(0), 3u);
  EXPECT_EQ(typed.outputs(3).contents().fp32_contents(0), -2.0f);
  for (const auto* response : {&raw, &typed}) {
    EXPECT_EQ(response->model_name(), "m");
    EXPECT_EQ(response->model_version(), "1");
    EXPECT_EQ(response->id(), "i");
  }
}

TEST(OipAnswer, AnErrorCarriesItsRequest) {
  inference::ModelStreamInferResponse message;
  ToProto(Asking(), ApiError{ApiCode::kUnavailable, "the queue is full", "", 2500}, message);
  EXPECT_EQ(message.error_message(), "the queue is full");
  EXPECT_EQ(message.infer_response().id(), "i");
  const auto& parameters = message.infer_response().parameters();
  EXPECT_TRUE(parameters.at("triton_final_response").bool_param());
  EXPECT_EQ(parameters.at("error_code").int64_param(), 14);
  EXPECT_EQ(parameters.at("retry_after_ms").int64_param(), 2500);
}

TEST(OipAnswer, WhatAMessageCannotHoldIsRefused) {
  inference::ModelInferResponse response;
  response.add_raw_output_contents(std::string(100, 'x'));
  EXPECT_FALSE(CheckSize(response, 200));
  const auto problem = CheckSize(response, 50);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ApiCode::kTooLarge);
}

TEST(OipAnswer, MetadataAndConfigurationListTheSameTensors) {
  inference::ModelMetadataResponse metadata;
  DescribeModel("m", metadata);
  inference::ModelConfig config;
  DescribeModel("m", config);
  EXPECT_TRUE(config.model_transaction_policy().decoupled());
  EXPECT_EQ(config.max_batch_size(), 0);
  ASSERT_EQ(metadata.inputs_size(), config.input_size());
  ASSERT_EQ(metadata.outputs_size(), config.output_size());
  for (int i = 0; i < metadata.inputs_size(); ++i) {
    EXPECT_EQ(metadata.inputs(i).name(), config.input(i).name());
    EXPECT_EQ(metadata.inputs(i).shape(0), config.input(i).dims(0));
  }
  EXPECT_EQ(metadata.inputs(0).datatype(), "BYTES");
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_STRING);
  EXPECT_EQ(metadata.versions(0), "1");
}

}  // namespace
}  // namespace quire::oip
