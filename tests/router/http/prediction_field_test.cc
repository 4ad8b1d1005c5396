// The text that a client expects as its answer, as requests bring it: its shapes, its charge, its
// bound. tests/router/pipeline/pipeline_prediction_test.cc has what becomes of it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "router/http/api_request.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

TEST(PredictionField, IsATextOrPartsOfIt) {
  const auto with = [](const std::string& prediction) {
    ApiRequest out;
    const std::string body =
        R"({"messages":[{"role":"user","content":"x"}],"prediction":)" + prediction + "}";
    EXPECT_FALSE(ParseApiRequest(ApiKind::kChat, body, {}, out).has_value()) << body;
    return out.requests[0].prediction;
  };
  EXPECT_EQ(with("null"), std::nullopt);
  EXPECT_EQ(with(R"({"type":"content","content":"a b"})"), "a b");
  EXPECT_EQ(with(R"({"type":"content","content":""})"), "");
  EXPECT_EQ(with(R"({"type":"content","content":[]})"), "");
  EXPECT_EQ(
      with(
          R"({"type":"content","content":[{"type":"text","text":"a\n"},{"type":"text","text":"b"}]})"),
      "a\nb")
      << "parts are joined as they are";
}

TEST(PredictionField, IsChargedAndBoundedLikeAPrompt) {
  const auto account = std::make_shared<MemoryAccount>(1 << 20);
  MemoryHold hold(account);
  RequestLimits limits;
  limits.hold = &hold;
  limits.max_prompt_bytes = 100;
  ApiRequest out;
  const auto body = [](size_t bytes) {
    return R"({"messages":[{"role":"u","content":"x"}],"prediction":{"type":"content","content":")" +
           std::string(bytes, 'p') + "\"}}";
  };
  EXPECT_FALSE(ParseApiRequest(ApiKind::kChat, body(100), limits, out).has_value());
  GenerateRequest without = out.requests[0];
  without.prediction.reset();
  EXPECT_EQ(HeldBytes(out.requests[0]), HeldBytes(without) + 100);
  EXPECT_EQ(hold.bytes(), HeldBytes(out.requests[0]) + PromptBytes(out.requests[0].prompt));
  const auto problem = ParseApiRequest(ApiKind::kChat, body(101), limits, out);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, ApiCode::kTooLarge);
  EXPECT_EQ(problem->param, "prediction");
}

}  // namespace
}  // namespace quire
