// The limits on what one request may ask for, at the limit and one above, over HTTP; and CORS.
#include <gtest/gtest.h>

#include "tests/router/support/edge_harness.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

std::string List(const std::string& item, size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + item;
  return text + "]";
}

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() {
    RequestLimits& limits = edge.services.request_limits;
    limits.max_prompts = 3;
    limits.max_messages = 4;
    limits.max_json_depth = 6;
    limits.max_json_values = 400;
    limits.max_prompt_bytes = 100;
    limits.max_choices = 5;
    limits.max_request_choices = 8;
    limits.max_stop_strings = 2;
    limits.max_logit_bias = 3;
    limits.max_tools = 2;
    limits.counters = &counters;
  }
  int Completion(const std::string& fields) {
    return edge.Ask(EdgeHarness::Post("/v1/completions", "{" + fields + "}")).status;
  }
  int Chat(const std::string& messages, const std::string& path = "/v1/chat/completions") {
    return edge.Ask(EdgeHarness::Post(path, R"({"messages":)" + messages + "}")).status;
  }
  static std::string Bias(int count) {
    std::string text = R"("prompt":"x","logit_bias":{)";
    for (int i = 0; i < count; ++i) {
      text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
    }
    return text + "}";
  }

  EdgeHarness edge;
  LimitCounters counters{edge.metrics};
};

TEST_F(LimitsTest, AtTheLimitServedAndOneMoreRefusedAndCounted) {
  EXPECT_EQ(Completion(R"("prompt":)" + List(R"("a")", 3)), 200);
  EXPECT_EQ(Completion(R"("prompt":)" + List(R"("a")", 4)), 400);
  EXPECT_EQ(counters.prompts.value(), 1u);

  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  const auto with_tools = [&](size_t count) {
    return edge.Ask(EdgeHarness::Post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"u","content":"x"}],"tools":)" + List(tool, count) + "}"));
  };
  edge.services.request_limits.max_prompt_bytes = 1000;
  EXPECT_EQ(with_tools(2).status, 200);
  EXPECT_EQ(with_tools(3).status, 400);
  EXPECT_EQ(counters.tools.value(), 1u);

  const std::string message = R"({"role":"u","content":"x"})";
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    EXPECT_EQ(Chat(List(message, 4), path), 200);
    EXPECT_EQ(Chat(List(message, 5), path), 400);
  }
  EXPECT_EQ(counters.messages.value(), 2u);
  edge.services.request_limits.max_prompt_bytes = 100;

  EXPECT_EQ(Completion(R"("prompt":"x","user":"u","unknown":)" + Nested(5)), 200);
  EXPECT_EQ(Completion(R"("prompt":"x","user":"u","unknown":)" + Nested(6)), 400);
  EXPECT_EQ(counters.json_depth.value(), 1u);

  EXPECT_EQ(Completion(R"("prompt":"x","user":"u","unknown":)" + List("0", 396)), 200);
  EXPECT_EQ(Completion(R"("prompt":"x","user":"u","unknown":)" + List("0", 397)), 400);
  EXPECT_EQ(counters.json_values.value(), 1u);

  EXPECT_EQ(Completion("\"prompt\":\"" + std::string(100, 'p') + "\""), 200);
  EXPECT_EQ(Completion("\"prompt\":\"" + std::string(101, 'p') + "\""), 413);
  EXPECT_EQ(Chat(R"([{"role":"u","content":")" + std::string(101, 'p') + "\"}]"), 413);
  EXPECT_EQ(counters.prompt_bytes.value(), 2u);

  EXPECT_EQ(Completion(R"("prompt":"x","n":5)"), 200);
  EXPECT_EQ(Completion(R"("prompt":"x","n":6)"), 400);
  EXPECT_EQ(counters.choices.value(), 1u);

  EXPECT_EQ(Completion(R"("n":4,"prompt":["a","b"])"), 200);
  EXPECT_EQ(Completion(R"("n":3,"prompt":["a","b","c"])"), 400);
  EXPECT_EQ(counters.request_choices.value(), 1u);

  EXPECT_EQ(Completion(R"("prompt":"x","stop":["a","b"])"), 200);
  EXPECT_EQ(Completion(R"("prompt":"x","stop":["a","b","c"])"), 400);
  EXPECT_EQ(counters.stop_strings.value(), 1u);

  EXPECT_EQ(Completion(Bias(3)), 200);
  EXPECT_EQ(Completion(Bias(4)), 400);
  EXPECT_EQ(counters.logit_bias.value(), 1u);
}

TEST_F(LimitsTest, ARefusalNamesTheFieldAndTheFlag) {
  const RawResponse refused =
      edge.Ask(EdgeHarness::Post("/v1/completions", R"({"prompt":"x","n":6})"));
  EXPECT_NE(refused.body.find("\"param\":\"n\""), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("--max-choices"), std::string::npos) << refused.body;
}

TEST(RequestLimits, ABatchOfManyPromptsPassesAndOneOfManyChoicesEachDoesNot) {
  EdgeHarness edge;
  const auto ask = [&](int n) {
    return edge.Ask(EdgeHarness::Post(
        "/v1/completions",
        R"({"max_tokens":1,"n":)" + std::to_string(n) + R"(,"prompt":)" + List("[1]", 1024) + "}"));
  };
  EXPECT_EQ(ask(1).status, 200);
  const RawResponse refused = ask(2);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("--max-request-choices"), std::string::npos) << refused.body;
}

TEST(Cors, IsOffByDefault) {
  EdgeHarness edge;
  const RawResponse answer =
      edge.Ask(EdgeHarness::Get("/v1/models", "Origin: https://a.example\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
}

TEST(Cors, ListedOriginsMayReadAndAskBeforeTheySendAKey) {
  EdgeHarness edge({}, TestKeys());
  edge.services.cors_origins = {"https://a.example"};
  const std::string ours = "Origin: https://a.example\r\n";
  const std::string theirs = "Origin: https://b.example\r\n";
  const auto options = [](const std::string& headers) {
    return "OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers +
           "Access-Control-Request-Method: POST\r\n\r\n";
  };
  RawResponse answer = edge.Ask(options(ours));
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers["access-control-allow-origin"], "https://a.example");
  EXPECT_NE(answer.headers["access-control-allow-headers"].find("authorization"),
            std::string::npos);
  answer = edge.Ask(options(theirs));
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
  answer = edge.Ask(EdgeHarness::Get("/v1/models", ours));  // asked, but without a key
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers["access-control-allow-origin"], "https://a.example");
  const std::string key = std::string("Authorization: Bearer ") + kAcmeKey + "\r\n";
  answer = edge.Ask(EdgeHarness::Get("/v1/models", ours + key));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers["vary"], "Origin");
  answer = edge.Ask(EdgeHarness::Get("/v1/models", theirs + key));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
}

}  // namespace
}  // namespace quire
