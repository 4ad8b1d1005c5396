// Answers that are streamed as events: their framing, their ends, and readers of every pace.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

TEST(HttpStreams, CompletionStreamFraming) {
  EdgeHarness edge;
  const RawResponse r =
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":2,
      "stream_options":{"include_usage":true}})",
                         "x-request-id: s\r\n"));
  ASSERT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(r.headers.at("cache-control"), "no-cache");
  EXPECT_TRUE(r.whole);
  const std::string head =
      R"(data: {"id":"cmpl-s","object":"text_completion","created":1700000001,)"
      R"("model":"demo","choices":[)";
  EXPECT_EQ(r.body,
            head +
                R"({"index":0,"text":"tok0","logprobs":null,"finish_reason":null}],"usage":null})"
                "\n\n" +
                head +
                R"({"index":0,"text":" tok1","logprobs":null,"finish_reason":null}],"usage":null})"
                "\n\n" +
                head +
                R"({"index":0,"text":"","logprobs":null,"finish_reason":"length",)"
                R"("stop_reason":null}],"usage":null})"
                "\n\n" +
                head +
                R"(],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
                R"("prompt_tokens_details":{"cached_tokens":1}}})"
                "\n\n"
                "data: [DONE]\n\n");
}

TEST(HttpStreams, ChatStreamFraming) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(
      edge.Post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":1,
      "return_token_ids":true})",
                "x-request-id: s\r\n"));
  ASSERT_EQ(r.status, 200);
  const std::string head =
      R"(data: {"id":"chatcmpl-s","object":"chat.completion.chunk","created":1700000001,)"
      R"("model":"demo","choices":[)";
  EXPECT_EQ(
      r.body,
      head +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
          R"("finish_reason":null}],)"
          R"("prompt_token_ids":[1,2,3],"seed":42,"model_id":"id-of-demo"})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{"content":"tok0"},"logprobs":null,"finish_reason":null,)"
          R"("token_ids":[100]}]})"
          "\n\n" +
          head +
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length","stop_reason":null}]})"
          "\n\n"
          "data: [DONE]\n\n");
}

TEST(HttpStreams, StreamsThatBreakEndInAnErrorEventAndNeverInDone) {
  EdgeHarness edge;
  for (const auto mode : {FakePipeline::Mode::kBreak, FakePipeline::Mode::kSilentEnd}) {
    edge.OnLoop([&] { edge.pipeline.mode = mode; });
    const RawResponse r = edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
    EXPECT_EQ(r.status, 200);
    EXPECT_TRUE(r.whole);
    EXPECT_NE(r.body.find("data: {\"error\":{"), std::string::npos);
    EXPECT_EQ(r.body.find("[DONE]"), std::string::npos);
    // Another router may be able to go on with it, but not with a bug, nor with several prompts.
    const std::string resume =
        R"(,"resume":{"seed":42,"created":1700000001,"model_id":"id-of-demo"}})";
    EXPECT_EQ(r.body.find(resume) != std::string::npos, mode == FakePipeline::Mode::kBreak);
    const RawResponse several =
        edge.Ask(edge.Post("/v1/completions", R"({"prompt":["x","y"],"stream":true})"));
    EXPECT_EQ(several.body.find("resume"), std::string::npos);
    const RawResponse whole = edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x"})"));
    EXPECT_EQ(whole.status, mode == FakePipeline::Mode::kBreak ? 503 : 500);
  }
  EXPECT_EQ(edge.counters.stream_error_events.value(), 4u);
}

TEST(HttpStreams, CommitsAndKeepsAliveWithCommentsWhileNothingComes) {
  HttpLimits limits;
  limits.sse_commit_after = 1;  // microseconds
  limits.sse_keep_alive = 1;
  EdgeHarness edge(limits);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_NE(client.ReadUntil(": keep-alive\n\n").find(": keep-alive\n\n"), std::string::npos);
  EXPECT_NE(client.ReadUntil(": keep-alive\n\n").find(": keep-alive\n\n"), std::string::npos);
  // A refusal after the commit can only be an event.
  edge.OnLoop([&] {
    auto live = edge.pipeline.live.begin()->second;
    edge.pipeline.live.clear();
    live.sink->OnError({ApiCode::kUnavailable, "no worker", "", 0});
  });
  const std::string rest = client.ReadUntil("0\r\n\r\n");
  EXPECT_NE(rest.find("data: {\"error\":{\"message\":\"no worker\""), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
}

// Within one turn of the loop: what the client can read then is what was sent with one call.
TEST(HttpStreams, AStreamsHeadAndFirstChunkLeaveTogether) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  for (const bool says_something : {true, false}) {
    RawClient client = edge.Connect();
    client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
    edge.OnLoop([&] {
      const FakePipeline::Live live = edge.pipeline.live.begin()->second;
      live.sink->OnStarted(FakePipeline::StartedFor(live.request));
      Delta delta = FakePipeline::Token(0, 0);
      if (!says_something) delta.text.clear();  // it may be the beginning of a stop string
      live.sink->OnDelta(delta);
      char bytes[4096];
      const ssize_t count = ::recv(client.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
      ASSERT_GT(count, 0);
      const std::string_view sent(bytes, static_cast<size_t>(count));
      EXPECT_TRUE(sent.starts_with("HTTP/1.1 200 "));
      const std::string_view body = sent.substr(sent.find("\r\n\r\n") + 4);
      EXPECT_EQ(body.find("tok0") != std::string_view::npos, says_something);
      EXPECT_EQ(body.empty(), !says_something) << "a chunk of no bytes would end it";
    });
    client.Close();
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
  }
}

TEST(HttpStreams, AClientThatLeavesIsCancelledAtOnce) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  for (const char* stream : {"true", "false"}) {
    RawClient client = edge.Connect();
    client.Send(edge.Post("/v1/completions",
                          std::string(R"({"prompt":["x","y"],"stream":)") + stream + "}"));
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 2; }));
    client.Close();
    EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
  }
  edge.OnLoop([&] {
    EXPECT_EQ(edge.pipeline.cancelled.size(), 4u);
    EXPECT_EQ(edge.http->connections(), 0u);
  });
  EXPECT_EQ(edge.counters.client_disconnects.value(), 2u);
}

TEST(HttpStreams, SlowReadersHoldTheirWindowBackAndGetEverything) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kFlood; });
  RawClient client = edge.Connect();
  int size = 4096;
  ::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":20000})"));
  // The client reads nothing until the window is used up and the socket is full.
  ASSERT_TRUE(edge.Eventually([&] {
    if (edge.pipeline.live.empty()) return false;
    const auto& live = edge.pipeline.live.begin()->second;
    return live.sent > 0 && live.sent - live.taken == edge.pipeline.window;
  }));
  const RawResponse r = client.ReadResponse();
  EXPECT_TRUE(r.whole);
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(r.body.find("tok19999"), std::string::npos);
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, edge.pipeline.window); });
}

// Sessions whose bytes the system took at once are told so together: each window moves on, whoever
// leaves in between.
TEST(HttpStreams, ManyStreamsGoOnTogetherWhileSomeOfTheirClientsLeave) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kFlood; });
  std::vector<RawClient> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(edge.Connect());
    const std::string tokens = i % 3 == 0 ? "1000000" : std::to_string(100 + i);
    clients.back().Send(edge.Post("/v1/completions",
                                  R"({"prompt":"x","stream":true,"max_tokens":)" + tokens + "}"));
  }
  for (size_t i = 0; i < clients.size(); i += 3) clients[i].Close();
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i % 3 == 0) continue;
    const RawResponse r = clients[i].ReadResponse();
    EXPECT_TRUE(r.whole);
    EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
    EXPECT_NE(r.body.find("tok" + std::to_string(99 + i)), std::string::npos);
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.cancelled.size(), 8u); });
}

TEST(HttpStreams, WindowMovesWhileTextIsHeldBack) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] {
    auto& live = edge.pipeline.live.begin()->second;
    live.sink->OnStarted(FakePipeline::StartedFor(live.request));
    Delta held = FakePipeline::Token(0, 0);
    held.text.clear();
    live.sink->OnDelta(held);
  });
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.begin()->second.taken == 1; }));
  edge.OnLoop([&] {
    Delta held = FakePipeline::Token(0, 1);
    held.text.clear();
    edge.pipeline.live.begin()->second.sink->OnDelta(held);
  });
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.begin()->second.taken == 2; }));
}

TEST(HttpStreams, AClientThatTakesNothingIsGivenUp) {
  HttpLimits limits;
  limits.write_timeout = 1000;  // microseconds
  EdgeHarness edge(limits);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kFlood;
    edge.pipeline.window = 1u << 20;
  });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
  EXPECT_GE(edge.counters.http_write_timeouts.value(), 1u);
}

// Both take something in every turn of the loop; the second is asked to take more than the whole.
TEST(HttpStreams, AReaderAtTheLeastRateGetsEverythingAndASlowerOneIsGivenUp) {
  for (const bool fast : {true, false}) {
    HttpLimits limits;
    limits.min_read_bytes_per_second = fast ? 1 : size_t{1} << 40;
    if (!fast) limits.write_timeout = 100 * kMicrosPerMilli;
    EdgeHarness edge(limits);
    RawClient client = edge.Connect();
    const std::string prompt(1u << 20, 'p');
    client.Send(edge.Post("/tokenize", R"({"prompt":")" + prompt + "\"}"));
    std::string got;
    std::string piece(fast ? 65536 : 64, 0);
    ssize_t count = 0;
    while (!got.ends_with("\"token_strs\":null}") &&
           (count = ::recv(client.fd(), piece.data(), piece.size(), 0)) > 0) {
      got.append(piece, 0, static_cast<size_t>(count));
      edge.OnLoop([] {});
    }
    EXPECT_EQ(got.ends_with("\"token_strs\":null}"), fast);
    edge.OnLoop([&] { EXPECT_EQ(edge.counters.http_write_timeouts.value(), fast ? 0u : 1u); });
  }
}

TEST(HttpStreams, TheWriteBufferIsBounded) {
  HttpLimits limits;
  limits.max_write_buffer_bytes = 64u << 10;
  EdgeHarness edge(limits);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kFlood;
    edge.pipeline.window = 1u << 20;  // a pipeline that does not hold back
  });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
}

}  // namespace
}  // namespace quire
