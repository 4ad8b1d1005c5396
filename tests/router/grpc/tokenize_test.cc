// Inference.Tokenize over gRPC: long answers are written off the loop, and work ends with its
// client.
#include <gtest/gtest.h>

#include <string>

#include "tests/router/support/wire_client.h"

namespace quire::wire {
namespace {

std::string TokenizeCall(uint32_t stream, size_t ids) {
  v1::TokenizeRequest request;
  request.set_text(std::string(ids, 'x'));
  request.set_add_special_tokens(false);
  return Headers(stream, Post("/quire.v1.Inference/Tokenize")) +
         Data(stream, Message(request.SerializeAsString()), kEndStream);
}

int IdsIn(const Answer& answer) {
  v1::TokenizeResponse response;
  EXPECT_EQ(answer.messages.size(), 1u);
  if (answer.messages.empty() || !response.ParseFromString(answer.messages[0])) return -1;
  EXPECT_EQ(response.max_model_len(), 2048u);
  return response.token_ids_size();
}

// The background of this client takes a millisecond of its time.
TEST(GrpcTokenize, AnswersAboveTheLimitAreWrittenOffTheLoop) {
  GrpcEdgeLimits limits;
  limits.background_write_bytes = 300;
  WireClient client(limits);
  client.Hello();
  client.Say(TokenizeCall(1, 100));
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_EQ(IdsIn(client.answers[1]), 100);
  client.Say(TokenizeCall(3, 101));
  EXPECT_EQ(client.answers[3].status(), "") << "its answer is being written";
  client.Say(TokenizeCall(5, 1));
  EXPECT_EQ(client.answers[5].status(), "0") << "others are answered meanwhile";
  client.Wait(2000);
  EXPECT_EQ(client.answers[3].status(), "0");
  EXPECT_EQ(IdsIn(client.answers[3]), 101);
}

TEST(GrpcTokenize, AClientThatLeavesEndsItsWork) {
  GrpcEdgeLimits limits;
  limits.background_write_bytes = 0;
  WireClient client(limits);
  client.Hello();
  client.Say(TokenizeCall(1, 10));
  ASSERT_NE(client.pipeline.tokenize_cancelled, nullptr);
  EXPECT_FALSE(*client.pipeline.tokenize_cancelled);
  client.Say(Frame(kReset, 0, 1, Number(8, 4)));
  EXPECT_TRUE(*client.pipeline.tokenize_cancelled);
  client.Wait(2000);
  EXPECT_TRUE(client.answers[1].messages.empty());
}

}  // namespace
}  // namespace quire::wire
