// /v1/responses and /v1/messages over HTTP: answers, streams, and errors in each API's own shape.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/responses/store.h"
#include "tests/router/support/agent_edge.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

constexpr char kMessages[] = "/v1/messages";
constexpr char kResponses[] = "/v1/responses";

std::string MessagesBody(const std::string& more = "") {
  return R"({"model":"demo","max_tokens":3,"messages":[{"role":"user","content":"x"}])" + more +
         "}";
}
std::string ResponsesBody(const std::string& more = "") {
  return R"({"model":"demo","input":"x","max_output_tokens":3)" + more + "}";
}

struct Api {
  const char* path;
  std::string body, streamed;
};
std::vector<Api> BothApis() {
  return {{kMessages, MessagesBody(), MessagesBody(R"(,"stream":true)")},
          {kResponses, ResponsesBody(), ResponsesBody(R"(,"stream":true)")}};
}

// The names of the events of a stream, in order, deltas joined.
std::string EventsOf(const std::string& body) {
  std::string out, last;
  for (size_t at = 0; (at = body.find("event: ", at)) != std::string::npos; ++at) {
    const std::string name = body.substr(at + 7, body.find('\n', at) - at - 7);
    if (name != last) out += (out.empty() ? "" : " ") + name;
    last = name;
  }
  return out;
}

using AgentHttp = AgentEdgeTest;

TEST_F(AgentHttp, AMessageIsAnswered) {
  const RawResponse answer = Post(kMessages, MessagesBody(), "x-request-id: r7\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("request-id"), "r7");
  EXPECT_EQ(answer.headers.at("x-quire-worker"), "w0");
  EXPECT_EQ(answer.body,
            R"({"id":"msg_r7","type":"message","role":"assistant","model":"demo","content":[)"
            R"({"type":"text","text":"tok0 tok1 tok2"}],"stop_reason":"max_tokens",)"
            R"("stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":1,"output_tokens":3}})");
  EXPECT_TRUE(Seen().read_answer);
}

TEST_F(AgentHttp, AResponseIsAnswered) {
  const RawResponse answer = Post(kResponses, ResponsesBody(), "x-request-id: r7\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.count("request-id"), 0u);
  EXPECT_TRUE(answer.body.starts_with(
      R"({"id":"resp_r7","object":"response","created_at":1700000001,"status":"incomplete",)"))
      << answer.body;
  EXPECT_NE(answer.body.find(R"("text":"tok0 tok1 tok2")"), std::string::npos);
}

TEST_F(AgentHttp, StreamsHaveTheirEvents) {
  const RawResponse message = Post(kMessages + std::string("?beta=true"), BothApis()[0].streamed);
  EXPECT_EQ(message.status, 200);
  EXPECT_TRUE(message.headers.at("content-type").starts_with("text/event-stream"));
  EXPECT_EQ(EventsOf(message.body),
            "message_start ping content_block_start content_block_delta content_block_stop "
            "message_delta message_stop");
  const RawResponse response = Post(kResponses, BothApis()[1].streamed);
  EXPECT_EQ(EventsOf(response.body),
            "response.created response.in_progress response.output_item.added "
            "response.content_part.added response.output_text.delta response.output_text.done "
            "response.content_part.done response.output_item.done response.incomplete");
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
}

TEST_F(AgentHttp, WhatTheClientTookIsReported) {
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kFlood;
    edge.pipeline.window = 4;
  });
  for (const Api& api : BothApis()) {
    std::string body = api.streamed;
    body.replace(body.find(":3"), 2, ":200");
    const RawResponse answer = Post(api.path, body);
    EXPECT_TRUE(answer.whole);
    EXPECT_NE(answer.body.find(" tok199"), std::string::npos);
  }
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, 4u); });
}

TEST_F(AgentHttp, AClientThatLeavesCancelsItsRequest) {
  Mode(FakePipeline::Mode::kManual);
  for (const Api& api : BothApis()) {
    {
      RawClient client = edge.Connect();
      client.Send(EdgeHarness::Post(api.path, api.streamed));
      ASSERT_TRUE(edge.Eventually([&] { return !edge.pipeline.live.empty(); }));
    }
    EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); })) << api.path;
  }
}

TEST_F(AgentHttp, TheClientsNameOfItsConversationIsItsSession) {
  Post(kMessages, MessagesBody(R"(,"metadata":{"user_id":"u-1"})"));
  EXPECT_EQ(Seen().session, "u-1");
  Post(kResponses, ResponsesBody(R"(,"prompt_cache_key":"k-1")"));
  EXPECT_EQ(Seen().session, "k-1");
  Post(kResponses, ResponsesBody(R"(,"prompt_cache_key":"k-1")"), "x-session-id: s-1\r\n");
  EXPECT_EQ(Seen().session, "s-1");
}

TEST_F(AgentHttp, RefusalsHaveTheShapeAndTheStatusOfTheirApi) {
  const RawResponse message = Post(kMessages, R"({"model":"demo"})", "x-request-id: r7\r\n");
  EXPECT_EQ(message.status, 400);
  EXPECT_EQ(message.body, R"({"type":"error","error":{"type":"invalid_request_error",)"
                          R"("message":"max_tokens: is missing"},"request_id":"r7"})");
  EXPECT_EQ(message.headers.at("request-id"), "r7");
  const RawResponse response = Post(kResponses, R"({"model":"demo"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, R"({"error":{"message":"input: is missing","type":)"
                           R"("invalid_request_error","param":"input","code":"invalid_value"}})");
  const RawResponse earlier =
      Post(kResponses, ResponsesBody(R"(,"previous_response_id":"resp_1")"));
  EXPECT_EQ(earlier.status, 400);
  EXPECT_NE(earlier.body.find(R"("code":"previous_response_not_found")"), std::string::npos);
}

TEST_F(AgentHttp, OverloadIs529ForAnthropicsClientsAnd503ForOthers) {
  Refuse({ApiCode::kUnavailable, "no worker", "", 3000});
  const RawResponse message = Post(kMessages, MessagesBody());
  EXPECT_EQ(message.status, 529);
  EXPECT_EQ(message.headers.at("retry-after"), "3");
  EXPECT_NE(message.body.find(R"("type":"overloaded_error")"), std::string::npos);
  EXPECT_EQ(Post(kResponses, ResponsesBody()).status, 503);
  Refuse({ApiCode::kRateLimited, "the queue is full", "", 2000});
  for (const Api& api : BothApis()) {
    const RawResponse limited = Post(api.path, api.body);
    EXPECT_EQ(limited.status, 429);
    EXPECT_EQ(limited.headers.at("retry-after"), "2");
    EXPECT_NE(limited.body.find("rate_limit"), std::string::npos);
  }
}

TEST_F(AgentHttp, RefusalsBeforeTheBodyHaveTheShapeToo) {
  const std::string plain = "Content-Type: text/plain\r\n";
  const std::string request =
      "POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + plain + "Content-Length: 2\r\n\r\n{}";
  const RawResponse type = edge.Ask(request);
  EXPECT_EQ(type.status, 415);
  EXPECT_TRUE(type.body.starts_with(R"({"type":"error","error":{"type":"invalid_request_error")"));
  const RawResponse method = edge.Ask(EdgeHarness::Get(kMessages));
  EXPECT_EQ(method.status, 405);
  EXPECT_TRUE(method.body.starts_with(R"({"type":"error")")) << method.body;
  const RawResponse path = edge.Ask(EdgeHarness::Post("/v1/messages/batches", "{}"));
  EXPECT_EQ(path.status, 404);
  EXPECT_NE(path.body.find(R"("type":"not_found_error")"), std::string::npos);
  HttpLimits limits;
  limits.max_body_bytes = 8;
  EdgeHarness small(limits, TestKeys());
  const RawResponse key = small.Ask(EdgeHarness::Post(kMessages, "{}"));
  EXPECT_EQ(key.status, 401);
  EXPECT_NE(key.body.find(R"("type":"authentication_error")"), std::string::npos);
  const RawResponse large = small.Ask(
      EdgeHarness::Post(kMessages, "{\"a\":123}", std::string("x-api-key: ") + kAcmeKey + "\r\n"));
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.body.find(R"("type":"request_too_large")"), std::string::npos) << large.body;
}

TEST_F(AgentHttp, OneConnectionServesEachApiInItsOwnShape) {
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Post(kMessages, "{}") + EdgeHarness::Post("/v1/completions", "{}"));
  EXPECT_TRUE(client.ReadResponse().body.starts_with(R"({"type":"error")"));
  const RawResponse other = client.ReadResponse();
  EXPECT_TRUE(other.body.starts_with(R"({"error":)"));
  EXPECT_EQ(other.headers.count("request-id"), 0u);
}

TEST_F(AgentHttp, ErrorsAmidAStreamEndItInItsOwnWords) {
  Mode(FakePipeline::Mode::kBreak);
  const RawResponse message = Post(kMessages, BothApis()[0].streamed);
  EXPECT_EQ(message.status, 200);
  EXPECT_TRUE(message.body.ends_with(
      "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
      "\"message\":\"the worker went away\"}}\n\n"))
      << message.body;
  const RawResponse response = Post(kResponses, BothApis()[1].streamed);
  EXPECT_TRUE(EventsOf(response.body).ends_with("response.failed")) << response.body;
  Mode(FakePipeline::Mode::kSilentEnd);
  for (const Api& api : BothApis()) {
    EXPECT_EQ(Post(api.path, api.body).status, 500);
    const std::string events = EventsOf(Post(api.path, api.streamed).body);
    EXPECT_TRUE(events.ends_with("error") || events.ends_with("response.failed")) << events;
  }
}

TEST_F(AgentHttp, AnswersThatFindNoMemoryAreRefused) {
  edge.OnLoop([&] { edge.pipeline.memory = std::make_shared<MemoryAccount>(size_t{96} << 10); });
  for (const Api& api : BothApis()) {
    const RawResponse fits = Post(api.path, api.body);
    EXPECT_EQ(fits.status, 200) << fits.body;
    std::string body = api.body;
    body.replace(body.find(":3"), 2, ":20000");
    const RawResponse refused = Post(api.path, body);
    EXPECT_EQ(refused.status, api.path == kMessages ? 529 : 503) << refused.body;
    EXPECT_NE(refused.body.find("ask for a stream"), std::string::npos);
  }
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.live.size(), 0u); });
  // A stream of /v1/responses ends with the whole of it; one of /v1/messages keeps nothing.
  std::string body = BothApis()[1].streamed;
  body.replace(body.find(":3"), 2, ":20000");
  EXPECT_TRUE(EventsOf(Post(kResponses, body).body).ends_with("response.failed"));
  body = BothApis()[0].streamed;
  body.replace(body.find(":3"), 2, ":20000");
  EXPECT_TRUE(EventsOf(Post(kMessages, body).body).ends_with("message_stop"));
}

TEST_F(AgentHttp, TokensAreCounted) {
  const RawResponse message =
      Post("/v1/messages/count_tokens",
           R"({"model":"demo","messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(message.body, R"({"input_tokens":1})");
  const RawResponse response =
      Post("/v1/responses/input_tokens", R"({"model":"demo","input":"x"})");
  EXPECT_EQ(response.body, R"({"object":"response.input_tokens","input_tokens":1})");
  const RawResponse unknown = Post("/v1/messages/count_tokens",
                                   R"({"model":"no","messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("not_found_error"), std::string::npos);
  EXPECT_EQ(Post("/v1/messages/count_tokens", "{}").status, 400);
}

TEST_F(AgentHttp, NoResponseIsKept) {
  for (const char* request :
       {"GET /v1/responses/resp_1", "DELETE /v1/responses/resp_1",
        "POST /v1/responses/resp_1/cancel", "GET /v1/responses/resp_1/input_items"}) {
    const RawResponse answer =
        edge.Ask(std::string(request) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_EQ(answer.status, 404) << request;
    EXPECT_NE(answer.body.find("Response with id 'resp_1' not found"), std::string::npos)
        << answer.body;
  }
}

TEST_F(AgentHttp, AKeptResponseIsReadContinuedAndDeleted) {
  responses::Store store(1u << 20, edge.services.memory, edge.metrics);
  edge.OnLoop([&] { edge.services.responses = &store; });
  const auto ask = [this](const std::string& line) {
    return edge.Ask(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  };
  const RawResponse answer = Post(kResponses, ResponsesBody(), "x-request-id: r7\r\n");
  EXPECT_NE(answer.body.find(R"("store":true)"), std::string::npos) << answer.body;
  EXPECT_EQ(ask("GET /v1/responses/resp_r7").body, answer.body);
  EXPECT_EQ(ask("GET /v1/responses/resp_r7/input_items").body,
            R"({"object":"list","data":[{"type":"message","id":"item_0","role":"user",)"
            R"("content":"x"}],"has_more":false})");
  EXPECT_EQ(Post(kResponses, ResponsesBody(R"(,"previous_response_id":"resp_r7","stream":true)"),
                 "x-request-id: r8\r\n")
                .status,
            200);
  EXPECT_EQ(std::get<ChatPrompt>(Seen().prompt).messages_json,
            R"([{"role":"user","content":"x"},{"role":"assistant","content":"tok0 tok1 tok2"},)"
            R"({"role":"user","content":"x"}])");
  EXPECT_EQ(ask("GET /v1/responses/resp_r8").status, 200) << "a stream's answer is kept too";
  EXPECT_EQ(Post("/v1/responses/input_tokens",
                 R"({"model":"demo","input":"x","previous_response_id":"resp_r7"})")
                .status,
            200);
  const RawResponse cancel = ask("POST /v1/responses/resp_r7/cancel");
  EXPECT_EQ(cancel.status, 400);
  EXPECT_NE(cancel.body.find("has ended"), std::string::npos) << cancel.body;
  EXPECT_EQ(ask("GET /v1/responses/resp_r7/elsewhere").status, 404);
  EXPECT_EQ(ask("DELETE /v1/responses/resp_r7/input_items").status, 404);
  EXPECT_EQ(ask("DELETE /v1/responses/resp_r7").body,
            R"({"id":"resp_r7","object":"response","deleted":true})");
  EXPECT_EQ(ask("DELETE /v1/responses/resp_r7").status, 404);
  EXPECT_EQ(ask("GET /v1/responses/resp_r7").status, 404);
  const RawResponse gone = Post(kResponses, ResponsesBody(R"(,"previous_response_id":"resp_r7")"));
  EXPECT_EQ(gone.status, 400);
  EXPECT_NE(gone.body.find("previous_response_not_found"), std::string::npos) << gone.body;
  edge.OnLoop([&] { edge.services.responses = nullptr; });
}

TEST_F(AgentHttp, AnAnswerThatFailsIsNotKept) {
  responses::Store store(1u << 20, edge.services.memory, edge.metrics);
  edge.OnLoop([&] { edge.services.responses = &store; });
  Refuse({ApiCode::kUnavailable, "no worker", "", 0});
  EXPECT_EQ(Post(kResponses, ResponsesBody()).status, 503);
  EXPECT_EQ(store.bytes(), 0u);
  edge.OnLoop([&] { edge.services.responses = nullptr; });
}

TEST_F(AgentHttp, ToolsThatTheModelIsNotShownAreCounted) {
  Post(kResponses, ResponsesBody(R"(,"tools":[{"type":"web_search"},{"type":"mcp"}])"));
  Post(kMessages, MessagesBody(R"(,"tools":[{"type":"bash_20250124","name":"bash"}])"));
  EXPECT_EQ(edge.counters.tools_left_out.value(), 3u);
}

TEST(AgentHttpSilence, ASilentStreamIsKeptAliveInItsApisWay) {
  HttpLimits limits;
  limits.sse_commit_after = 1;  // microseconds
  limits.sse_keep_alive = 1;
  EdgeHarness edge(limits);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Post(kMessages, BothApis()[0].streamed));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(client.ReadUntil("{\"type\":\"ping\"}\n\n").ends_with("{\"type\":\"ping\"}\n\n"));
  }
  // A refusal after that can only be an event.
  edge.OnLoop([&] { edge.pipeline.EndAll({ApiCode::kRateLimited, "full", "", 0}); });
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("rate_limit_error"), std::string::npos);
}

TEST(AgentHttpLarge, BodiesAreReadInTheBackground) {
  HttpLimits limits;
  limits.background_parse_bytes = 16;
  EdgeHarness edge(limits);
  for (const Api& api : BothApis()) {
    EXPECT_EQ(edge.Ask(EdgeHarness::Post(api.path, api.body)).status, 200);
    EXPECT_EQ(edge.Ask(EdgeHarness::Post(api.path, "{\"model\":\"demo\",\"x\":1}")).status, 400);
  }
  EXPECT_EQ(edge.Ask(EdgeHarness::Post("/v1/messages/count_tokens", MessagesBody())).status, 200);
}

}  // namespace
}  // namespace quire
