// Whole answers of the Open Inference Protocol: large ones are written off the loop.
#include <gtest/gtest.h>

#include <string>

#include "inference/open_inference.pb.h"
#include "router/oip/infer_answer.h"
#include "tests/router/support/wire_client.h"

namespace quire::wire {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

const std::string kWholeInfer = "/inference.GRPCInferenceService/ModelInfer";
const std::string kWholeStreamInfer = "/inference.GRPCInferenceService/ModelStreamInfer";

std::string WholeAsked(int max_tokens, bool of_stream = false) {
  ModelInferRequest request;
  request.set_model_name("demo");
  request.set_id("a");
  const auto add = [&](const char* name, const char* type) -> auto& {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(type);
    input.add_shape(1);
    return *input.mutable_contents();
  };
  add("text_input", "BYTES").add_bytes_contents("x");
  if (of_stream) add("stream", "BOOL").add_bool_contents(false);
  (*request.mutable_parameters())["max_tokens"].set_int64_param(max_tokens);
  (*request.mutable_parameters())["binary_data_output"].set_bool_param(false);
  return Message(request.SerializeAsString());
}

// What the answer holds when it is whole.
size_t WholeHeldBy(int tokens) {
  oip::InferAnswer answer{oip::InferRequest()};
  for (int i = 0; i < tokens; ++i) {
    answer.Add(FakePipeline::Token(0, static_cast<uint64_t>(i)));
  }
  return answer.held_bytes();
}

constexpr int kTokensAtLimit = 40;
int TokensAboveLimit() {
  int tokens = kTokensAtLimit;
  while (WholeHeldBy(tokens) == WholeHeldBy(kTokensAtLimit)) ++tokens;
  return tokens;
}

GrpcEdgeLimits WholeLimits() {
  GrpcEdgeLimits limits;
  limits.background_write_bytes = WholeHeldBy(kTokensAtLimit);
  return limits;
}

int WholeTokensIn(const ModelInferResponse& response) {
  EXPECT_EQ(response.id(), "a");
  EXPECT_TRUE(response.parameters().at("triton_final_response").bool_param());
  EXPECT_EQ(response.outputs_size(), 3);
  if (response.outputs_size() != 3) return -1;
  EXPECT_TRUE(response.outputs(0).contents().bytes_contents(0).starts_with("tok0 tok1"));
  EXPECT_EQ(response.outputs(2).contents().bytes_contents(0), "length");
  return response.outputs(1).contents().int_contents_size();
}

int WholeTokensIn(const Answer& answer, bool of_stream) {
  EXPECT_EQ(answer.messages.size(), 1u);
  if (answer.messages.size() != 1) return -1;
  ModelStreamInferResponse streamed;
  ModelInferResponse whole;
  const bool parsed = of_stream ? streamed.ParseFromString(answer.messages[0])
                                : whole.ParseFromString(answer.messages[0]);
  if (!parsed) return -1;
  EXPECT_EQ(streamed.error_message(), "");
  return WholeTokensIn(of_stream ? streamed.infer_response() : whole);
}

class WholeAnswers : public testing::TestWithParam<bool> {
 protected:
  bool of_stream() const { return GetParam(); }
  std::string Call(uint32_t stream, int max_tokens) const {
    return Headers(stream, Post(of_stream() ? kWholeStreamInfer : kWholeInfer)) +
           Data(stream, WholeAsked(max_tokens, of_stream()), kEndStream);
  }
};

// The background of this client takes a millisecond of its time, and the loop none.
TEST_P(WholeAnswers, AboveTheLimitAreWrittenOffTheLoop) {
  WireClient client(WholeLimits());
  client.Hello();
  client.Say(Call(1, kTokensAtLimit));
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_EQ(WholeTokensIn(client.answers[1], of_stream()), kTokensAtLimit);
  client.Say(Call(3, TokensAboveLimit()));
  EXPECT_TRUE(client.pipeline.live.empty()) << "its request has ended";
  EXPECT_TRUE(client.answers[3].messages.empty()) << "its answer is being written";
  EXPECT_FALSE(client.answers[3].ended);
  client.Say(Call(5, 1));
  EXPECT_EQ(client.answers[5].status(), "0") << "others are answered meanwhile";
  client.Wait(2000);
  EXPECT_EQ(client.answers[3].status(), "0");
  EXPECT_EQ(WholeTokensIn(client.answers[3], of_stream()), TokensAboveLimit());
}

TEST_P(WholeAnswers, AClientThatLeavesIsSentNothing) {
  WireClient client(WholeLimits());
  client.Hello();
  client.Say(Call(1, TokensAboveLimit()));
  client.Say(Frame(kReset, 0, 1, Number(8, 4)));
  client.Wait(2000);
  EXPECT_TRUE(client.answers[1].messages.empty());
  EXPECT_EQ(client.pipeline.memory->bytes(), 0u);
  EXPECT_EQ(client.counters.grpc_cancelled.value(), 1u);
}

// What is sent is limited there as on the loop.
TEST_P(WholeAnswers, WhatNoMessageHoldsIsAnError) {
  GrpcEdgeLimits limits = WholeLimits();
  limits.max_send_bytes = 300;
  WireClient client(limits);
  client.Hello();
  client.Say(Call(1, TokensAboveLimit()));
  EXPECT_FALSE(client.answers[1].ended);
  client.Wait(2000);
  ModelStreamInferResponse response;
  if (of_stream()) {
    EXPECT_EQ(client.answers[1].status(), "0");
    ASSERT_EQ(client.answers[1].messages.size(), 1u);
    EXPECT_TRUE(response.ParseFromString(client.answers[1].messages[0]));
    EXPECT_NE(response.error_message().find("more than one message may hold"), std::string::npos);
  } else {
    EXPECT_EQ(client.answers[1].status(), "8");
  }
}

// Its outputs, their message and its bytes count for the tenant before they take memory.
TEST_P(WholeAnswers, CopiesAtTheMemoryLimitAreMadeAndOfAByteMoreNone) {
  const int tokens = TokensAboveLimit();
  for (const size_t over : {0, 1}) {
    WireClient client(WholeLimits());
    client.pipeline.mode = FakePipeline::Mode::kManual;
    client.Hello();
    client.Say(Call(1, tokens));
    ASSERT_EQ(client.pipeline.live.size(), 1u);
    ResponseSink* sink = client.pipeline.live.begin()->second.sink;
    client.pipeline.live.clear();
    for (int i = 0; i < tokens; ++i) {
      sink->OnDelta(FakePipeline::Token(0, static_cast<uint64_t>(i)));
    }
    const MemoryAccount& tenant = *client.pipeline.memory;
    MemoryHold others(client.pipeline.memory);
    others.Resize(tenant.limit() - tenant.bytes() - 3 * WholeHeldBy(tokens) + over);
    ChoiceEnd end;
    end.finish_reason = "length";
    sink->OnChoiceEnd(end);
    sink->OnFinished({});
    client.Wait(2000);
    EXPECT_TRUE(client.answers[1].ended);
    if (over == 0) {
      EXPECT_EQ(WholeTokensIn(client.answers[1], of_stream()), tokens);
    } else if (of_stream()) {
      ModelStreamInferResponse response;
      ASSERT_EQ(client.answers[1].messages.size(), 1u);
      EXPECT_TRUE(response.ParseFromString(client.answers[1].messages[0]));
      EXPECT_NE(response.error_message(), "");
    } else {
      EXPECT_TRUE(client.answers[1].messages.empty());
      EXPECT_NE(client.answers[1].status(), "0");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Oip, WholeAnswers, testing::Bool(),
                         [](const auto& of) { return of.param ? "Streamed" : "Unary"; });

}  // namespace
}  // namespace quire::wire
