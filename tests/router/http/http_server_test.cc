#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

json::Object Object(const std::string& text) {
  auto value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() && value->is_object() ? value->get_object() : json::Object();
}

std::string At(const json::Object& object, std::initializer_list<std::string_view> keys) {
  const json::Object* current = &object;
  const json::Value* value = nullptr;
  for (std::string_view key : keys) {
    value = current ? json::Find(*current, key) : nullptr;
    current = value && value->is_object() ? &value->get_object() : nullptr;
  }
  return value ? json::Serialize(*value) : "absent";
}

TEST(HttpServer, ServesTheSmallRoutes) {
  EdgeHarness edge;
  EXPECT_EQ(edge.Ask(edge.Get("/livez")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/readyz")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/health")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/version")).body, R"({"version":"0.0.0-test"})");
  EXPECT_EQ(edge.Ask(edge.Get("/metrics?x=1")).body, "# HELP x y\nx 1\n");
  const json::Object models = Object(edge.Ask(edge.Get("/v1/models")).body);
  EXPECT_EQ(At(models, {"object"}), "\"list\"");
  const json::Object one = Object(edge.Ask(edge.Get("/v1/models/%64emo")).body);
  EXPECT_EQ(At(one, {"id"}), "\"demo\"");
  EXPECT_EQ(At(one, {"max_model_len"}), "2048");
  EXPECT_EQ(edge.Ask(edge.Get("/openai/v1/models")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/openai/v1/models/demo")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/openai/v1/completions")).status, 405);
  EXPECT_EQ(edge.Ask(edge.Get("/openai/livez")).status, 404);
  EXPECT_EQ(edge.Ask(edge.Get("/openai/openai/v1/models")).status, 404);
  const RawResponse none = edge.Ask(edge.Get("/v1/models/other"));
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(At(Object(none.body), {"error", "code"}), "\"model_not_found\"");
}

TEST(HttpServer, AdaptersAreListedWithTheirParent) {
  EdgeHarness edge;
  edge.OnLoop([&] {
    ModelEntry adapter{"sql", "id-of-demo", 2048, 1, 1700000000};
    adapter.parent = "demo";
    adapter.adapter = "d1";
    edge.pipeline.adapters = {adapter};
  });
  const json::Object sql = Object(edge.Ask(edge.Get("/v1/models/sql")).body);
  EXPECT_EQ(At(sql, {"parent"}), "\"demo\"");
  EXPECT_EQ(At(sql, {"root"}), "\"demo\"");
  EXPECT_EQ(At(sql, {"adapter"}), "\"d1\"");
  const std::string demo = edge.Ask(edge.Get("/v1/models/demo")).body;
  EXPECT_NE(demo.find(R"("root":"demo","parent":null,"adapter":null)"), std::string::npos) << demo;
  const RawResponse none = edge.Ask(edge.Get("/v1/models/sqk"));
  EXPECT_EQ(none.status, 404);
  EXPECT_NE(none.body.find("the nearest name is sql"), std::string::npos) << none.body;
}

TEST(HttpServer, HealthFollowsThePipeline) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.ready = edge.pipeline.healthy = false; });
  EXPECT_EQ(edge.Ask(edge.Get("/livez")).status, 200);
  EXPECT_EQ(edge.Ask(edge.Get("/readyz")).status, 503);
  EXPECT_EQ(edge.Ask(edge.Get("/health")).status, 503);
}

TEST(HttpServer, UnknownPathsAndMethods) {
  EdgeHarness edge;
  const RawResponse missing = edge.Ask(edge.Get("/nope"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(At(Object(missing.body), {"error", "type"}), "\"invalid_request_error\"");
  const RawResponse method = edge.Ask(edge.Get("/v1/completions"));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST, OPTIONS");
  const RawResponse options = edge.Ask("OPTIONS /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  const RawResponse head = edge.Ask("HEAD /version HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "24");
}

TEST(HttpServer, AnAnswerNamesItsTrace) {
  EdgeHarness edge;
  const std::string body = R"({"model":"demo","prompt":"x","max_tokens":2})";
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", body)).headers.count("traceresponse"), 0u);
  const std::string header =
      "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
      "tracestate: a=1\r\nTracestate: b=2\r\n";
  const std::string streaming = R"({"model":"demo","prompt":"x","max_tokens":2,"stream":true})";
  const std::string generate = R"({"text_input":"x","parameters":{"max_tokens":2}})";
  for (const auto& [path, text] : {std::pair{"/v1/completions", body},
                                   {"/v1/completions", streaming},
                                   {"/v2/models/demo/generate", generate}}) {
    const RawResponse r = edge.Ask(edge.Post(path, text, header));
    ASSERT_EQ(r.status, 200) << r.body;
    const std::string traced = r.headers.at("traceresponse");
    EXPECT_EQ(traced.substr(0, 36), "00-4bf92f3577b34da6a3ce929d0e0e4736-") << path;
    EXPECT_EQ(traced.substr(52), "-00") << "nothing is recorded here";
    EXPECT_EQ(traced.find("00f067aa0ba902b7"), std::string::npos) << "a span of the router's own";
  }
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.seen.size(), 4u);
    EXPECT_EQ(edge.pipeline.seen[0].tracestate, "");
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(edge.pipeline.seen[i].tracestate, "a=1,b=2") << i;
  });
}

TEST(HttpServer, CompletionWhole) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(edge.Post(
      "/v1/completions", R"({"model":"demo","prompt":"x","return_token_ids":true,"max_tokens":2})",
      "X-Request-Id: abc\r\n"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.headers.at("x-request-id"), "abc");
  EXPECT_EQ(r.headers.at("x-quire-worker"), "w0");
  EXPECT_EQ(r.body,
            R"({"id":"cmpl-abc","object":"text_completion","created":1700000001,"model":"demo",)"
            R"("choices":[{"index":0,"text":"tok0 tok1","logprobs":null,"finish_reason":"length",)"
            R"("stop_reason":null,"prompt_token_ids":[1,2,3],"token_ids":[100,101]}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
            R"("prompt_tokens_details":{"cached_tokens":1}},"seed":42,"model_id":"id-of-demo"})");
}

TEST(HttpServer, TheUsageOfAPredictionIsShownWholeAndStreamed) {
  EdgeHarness edge;
  const auto ask = [&](const std::string& more) {
    return edge
        .Ask(
            edge.Post("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2)" + more + "}"))
        .body;
  };
  const std::string predicts = R"(,"prediction":{"type":"content","content":"tok0"})";
  const std::string streams = R"(,"stream":true,"stream_options":{"include_usage":true})";
  const std::string shown =
      R"("prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":)"
      R"({"reasoning_tokens":0,"accepted_prediction_tokens":7,"rejected_prediction_tokens":4}})";
  for (const std::string& how : {std::string(), streams}) {
    EXPECT_NE(ask(predicts + how).find(shown), std::string::npos);
    EXPECT_EQ(ask(how).find("completion_tokens_details"), std::string::npos);
  }
}

// Choices × the text of each: what waits until it is whole counts as it grows.
TEST(HttpServer, AWholeAnswerHoldsWhatItsTenantMayHoldAndAStreamNeedNot) {
  EdgeHarness edge;
  edge.OnLoop([&] {
    edge.pipeline.memory =
        std::make_shared<MemoryAccount>(60'000, edge.services.memory, MemoryScope::kTenant);
  });
  const auto ask = [&](int tokens, const std::string& more) {
    return edge.Ask(edge.Post(
        "/v1/completions", R"({"prompt":"x","max_tokens":)" + std::to_string(tokens) + more + "}"));
  };
  EXPECT_EQ(ask(100, "").status, 200);
  const RawResponse refused = ask(4000, "");
  EXPECT_EQ(refused.status, 503) << refused.body.substr(0, 200);
  EXPECT_GT(refused.headers.count("retry-after"), 0u);
  EXPECT_EQ(ask(4000, R"(,"stream":true)").status, 200);
  edge.OnLoop([&] {
    EXPECT_EQ(edge.services.memory->refused(MemoryScope::kTenant), 1u);
    EXPECT_EQ(edge.pipeline.memory->bytes(), 0u);
  });
}

TEST(HttpServer, ABodyWhoseTreeIsTooMuchForItsTenantIsRefusedBeforeItIsRead) {
  EdgeHarness edge;
  edge.OnLoop([&] {
    edge.pipeline.memory =
        std::make_shared<MemoryAccount>(100'000, edge.services.memory, MemoryScope::kTenant);
  });
  const auto ask = [&](size_t zeros) {
    std::string list = "0";
    for (size_t i = 1; i < zeros; ++i) list += ",0";
    return edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x","metadata":[)" + list + "]}"));
  };
  EXPECT_EQ(ask(100).status, 200);
  EXPECT_EQ(ask(2000).status, 503);
  edge.OnLoop([&] { EXPECT_EQ(edge.services.memory->refused(MemoryScope::kTenant), 1u); });
}

TEST(HttpServer, ChatWholeWithLogprobs) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(edge.Post("/v1/chat/completions",
                                           R"({"messages":[{"role":"user","content":"x"}],
      "logprobs":true,"top_logprobs":1,"max_tokens":1})",
                                           "X-Request-Id: q\r\n"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.body,
            R"({"id":"chatcmpl-q","object":"chat.completion","created":1700000001,"model":"demo",)"
            R"("choices":[{"index":0,"message":{"role":"assistant","content":"tok0"},)"
            R"("logprobs":{"content":[{"token":"tok0","logprob":-0.5,"bytes":[116,111,107,48],)"
            R"("top_logprobs":[{"token":"alt","logprob":-1.5,"bytes":[97,108,116]}]}]},)"
            R"("finish_reason":"length","stop_reason":null}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,)"
            R"("prompt_tokens_details":{"cached_tokens":1}}})");
}

TEST(HttpServer, EachPromptOfAListIsItsOwnRequest) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(edge.Post(
      "/v1/completions", R"({"prompt":[[5],[6,7]],"n":2,"max_tokens":1,"return_token_ids":true})"));
  ASSERT_EQ(r.status, 200) << r.body;
  const json::Object body = Object(r.body);
  const json::Array& choices = json::Find(body, "choices")->get_array();
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(At(choices[i].get_object(), {"index"}), std::to_string(i));
    EXPECT_EQ(At(choices[i].get_object(), {"prompt_token_ids"}), i < 2 ? "[5]" : "[6,7]");
  }
  EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), "6");
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), "4");
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.seen.size(), 2u); });
}

TEST(HttpServer, RefusalBeforeTheFirstTokenIsARealStatus) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kRefuse; });
  for (const char* stream : {"true", "false"}) {
    const RawResponse r = edge.Ask(
        edge.Post("/v1/completions", std::string(R"({"prompt":"x","stream":)") + stream + "}"));
    EXPECT_EQ(r.status, 429);
    EXPECT_EQ(r.headers.at("retry-after"), "2");
    EXPECT_EQ(r.headers.at("retry-after-ms"), "2000");
    EXPECT_EQ(At(Object(r.body), {"error", "type"}), "\"rate_limit_error\"");
  }
}

TEST(HttpServer, OneFailedPromptCancelsTheOthers) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":["x","y"]})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 2; }));
  edge.OnLoop([&] {
    ResponseSink* sink = edge.pipeline.live.begin()->second.sink;
    edge.pipeline.live.erase(edge.pipeline.live.begin());
    sink->OnError({ApiCode::kInvalidArgument, "prompt: too long", "prompt", 0});
    EXPECT_TRUE(edge.pipeline.live.empty());
  });
  const RawResponse r = client.ReadResponse();
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(At(Object(r.body), {"error", "param"}), "\"prompt\"");
}

TEST(HttpServer, TimeoutHeadersReachThePipelineOrAreRefused) {
  EdgeHarness edge;
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x"})", "X-Quire-Timeout: 2.5\r\n"))
                .status,
            200);
  EXPECT_EQ(
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x"})", "X-Request-Timeout-Ms: 70\r\n"))
          .status,
      200);
  edge.OnLoop([&] {
    EXPECT_EQ(edge.pipeline.seen[0].timeout_ms, 2500u);
    EXPECT_EQ(edge.pipeline.seen[1].timeout_ms, 70u);
  });
  const RawResponse bad =
      edge.Ask(edge.Post("/v1/completions", R"({"prompt":"x"})", "X-Quire-Timeout: soon\r\n"));
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(At(Object(bad.body), {"error", "param"}), "\"x-quire-timeout\"");
}

TEST(HttpServer, UnknownModelIs404WithItsCode) {
  EdgeHarness edge;
  const RawResponse r = edge.Ask(edge.Post(
      "/v1/chat/completions", R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})"));
  EXPECT_EQ(r.status, 404);
  EXPECT_EQ(At(Object(r.body), {"error", "code"}), "\"model_not_found\"");
  EXPECT_EQ(At(Object(r.body), {"error", "param"}), "\"model\"");
}

TEST(HttpServer, TokenizeAndDetokenize) {
  EdgeHarness edge;
  EXPECT_EQ(edge.Ask(edge.Post("/tokenize", R"({"prompt":"AB"})")).body,
            R"({"count":3,"max_model_len":2048,"tokens":[1,65,66],"token_strs":null})");
  EXPECT_EQ(
      edge.Ask(edge.Post("/tokenize",
                         R"({"prompt":"A","add_special_tokens":false,"return_token_strs":true})"))
          .body,
      R"({"count":1,"max_model_len":2048,"tokens":[65],"token_strs":["A"]})");
  EXPECT_EQ(edge.Ask(edge.Post("/detokenize", R"({"tokens":[72,105]})")).body,
            R"({"prompt":"Hi"})");
  EXPECT_EQ(edge.Ask(edge.Post("/tokenize", R"({"model":"other","prompt":"A"})")).status, 404);
  EXPECT_EQ(edge.Ask(edge.Post("/detokenize", "{}")).status, 400);
}

TEST(HttpServer, TheTokenizerOfAModelIsShown) {
  EdgeHarness edge;
  auto text = std::make_shared<FakeText>();
  text->shown.info = R"({"eos_token":"<eos>","chat_template":"{{ 1 }}"})";
  edge.OnLoop([&] { edge.pipeline.text = text; });
  for (const char* path : {"/tokenizer_info", "/tokenizer_info/demo"}) {
    const RawResponse r = edge.Ask(edge.Get(path));
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.headers.at("content-type"), "application/json");
    EXPECT_EQ(r.body, text->shown.info);
  }
  const RawResponse other = edge.Ask(edge.Get("/tokenizer_info/other"));
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(other.body.find("model: 'other' is not served; served are: demo"), std::string::npos);
  edge.OnLoop([&] { edge.pipeline.text_problem = NotServed("", {"a", "b"}); });
  const RawResponse several = edge.Ask(edge.Get("/tokenizer_info"));
  EXPECT_EQ(several.status, 400);
  EXPECT_NE(several.body.find("must name one of the models that are served: a, b; "
                              "GET /tokenizer_info/NAME reads one of them"),
            std::string::npos)
      << several.body;
}

TEST(HttpServer, DrainEndsIdleConnectionsAndFinishesTheOthers) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient idle = edge.Connect();
  idle.Send(edge.Get("/livez"));
  EXPECT_EQ(idle.ReadResponse().headers.at("connection"), "keep-alive");
  RawClient busy = edge.Connect();
  busy.Send(edge.Post("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] { edge.http->StartDraining(); });
  EXPECT_EQ(idle.ReadToEnd(), "");
  edge.OnLoop([&] {
    auto live = edge.pipeline.live.begin()->second;
    edge.pipeline.live.clear();
    live.sink->OnStarted(FakePipeline::StartedFor(live.request));
    live.sink->OnChoiceEnd({0, "stop", "###", {}});
    live.sink->OnFinished({});
  });
  const RawResponse r = busy.ReadResponse();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("connection"), "close");
  EXPECT_NE(r.body.find("\"stop_reason\":\"###\""), std::string::npos);
}

}  // namespace
}  // namespace quire
