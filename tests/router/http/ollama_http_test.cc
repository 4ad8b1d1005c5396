// Ollama's API over HTTP: answers, streams of lines, models, and errors in its own shape.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/http/routes.h"
#include "tests/router/support/agent_edge.h"
#include "tests/router/support/fake_models.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

constexpr char kGenerate[] = "/api/generate";
constexpr char kChat[] = "/api/chat";

std::string GenerateBody(const std::string& more = "") {
  return R"({"model":"demo","prompt":"x","options":{"num_predict":3})" + more + "}";
}
std::string ChatBody(const std::string& more = "") {
  return R"({"model":"demo","messages":[{"role":"user","content":"x"}],)"
         R"("options":{"num_predict":3})" +
         more + "}";
}

std::vector<std::string> LinesOf(const std::string& body) {
  std::vector<std::string> lines;
  for (size_t at = 0, end = 0; (end = body.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(body.substr(at, end - at));
  }
  return lines;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using OllamaHttp = AgentEdgeTest;

TEST_F(OllamaHttp, StreamsAreLinesAndTheDefault) {
  const RawResponse generated = Post(kGenerate, GenerateBody());
  EXPECT_EQ(generated.status, 200);
  EXPECT_EQ(generated.headers.at("content-type"), "application/x-ndjson");
  EXPECT_EQ(generated.headers.at("x-quire-worker"), "w0");
  const std::vector<std::string> lines = LinesOf(generated.body);
  ASSERT_EQ(lines.size(), 4u) << generated.body;
  EXPECT_TRUE(Has(lines[0], R"("response":"tok0","done":false})")) << lines[0];
  EXPECT_TRUE(Has(lines[3], R"("response":"","done":true,"done_reason":"length")")) << lines[3];
  EXPECT_TRUE(Has(lines[3], R"("prompt_eval_count":3)") && Has(lines[3], R"("eval_count":3)"));
  const RawResponse chat = Post(kChat, ChatBody());
  EXPECT_TRUE(Has(LinesOf(chat.body)[1],
                  R"("message":{"role":"assistant","content":" tok1"},"done":false})"))
      << chat.body;
  EXPECT_TRUE(Seen().streaming);
}

TEST_F(OllamaHttp, WholeAnswersAreOneObject) {
  const RawResponse generated = Post(kGenerate, GenerateBody(R"(,"stream":false)"));
  EXPECT_EQ(generated.headers.at("content-type"), "application/json");
  EXPECT_TRUE(Has(generated.body, R"("response":"tok0 tok1 tok2","done":true)")) << generated.body;
  const RawResponse chat = Post(kChat, ChatBody(R"(,"stream":false)"));
  EXPECT_TRUE(Has(chat.body, R"("content":"tok0 tok1 tok2"},"done":true)")) << chat.body;
  EXPECT_FALSE(Seen().streaming);
}

TEST_F(OllamaHttp, ANameMayEndInLatestAndComesBackAsItWasGiven) {
  const RawResponse answer =
      Post(kGenerate, R"({"model":"demo:latest","prompt":"x","stream":false})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.starts_with(R"({"model":"demo:latest",)")) << answer.body;
  EXPECT_EQ(Seen().model, "demo");
  EXPECT_EQ(Post(kGenerate, R"({"model":"demo:7b","prompt":"x"})").status, 404);
  EXPECT_EQ(Post("/api/show", R"({"name":"demo:latest"})").status, 200);
}

TEST_F(OllamaHttp, WhatTheClientTookIsReported) {
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kFlood;
    edge.pipeline.window = 4;
  });
  const RawResponse answer =
      Post(kGenerate, R"({"model":"demo","prompt":"x","options":{"num_predict":200}})");
  EXPECT_EQ(LinesOf(answer.body).size(), 201u);
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, 4u); });
}

TEST_F(OllamaHttp, AClientThatLeavesCancelsItsRequest) {
  Mode(FakePipeline::Mode::kManual);
  {
    RawClient client = edge.Connect();
    client.Send(EdgeHarness::Post(kChat, ChatBody()));
    ASSERT_TRUE(edge.Eventually([&] { return !edge.pipeline.live.empty(); }));
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
}

TEST_F(OllamaHttp, EveryRefusalIsATextUnderError) {
  const auto expect = [](const RawResponse& answer, int status, const std::string& begin) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_TRUE(answer.body.starts_with("{\"error\":\"" + begin)) << answer.body;
    EXPECT_TRUE(answer.body.ends_with("\"}")) << answer.body;
  };
  expect(Post(kGenerate, R"({"model":"demo","prompt":"x","options":{"x":1}})"), 400,
         "options.x: is no option");
  expect(Post(kGenerate, "x"), 400, "the body must be a JSON object");
  expect(Post(kChat, R"({"model":"none","messages":[{"role":"user","content":"x"}]})"), 404,
         "model: not served");
  expect(Post("/api/show", R"({"model":"none"})"), 404,
         "model: 'none' is not served; served are: demo");
  expect(Post("/api/show", "[]"), 400, "the body must be a JSON object");
  expect(edge.Ask(EdgeHarness::Get(kGenerate)), 405, "/api/generate is served by POST only");
  expect(edge.Ask(EdgeHarness::Get("/api/nothing")), 404, "nothing is served at GET /api/nothing");
  expect(Post("/api/pull", "{}"), 404, "nothing is served at POST /api/pull");
  expect(edge.Ask("POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                  "Content-Length: 2\r\n\r\n{}"),
         415, "Content-Type: ");
  for (const char* path : {"/api/create", "/api/copy", "/api/push", "/api/embed", "/api/embeddings",
                           "/api/blobs/sha256:00"}) {
    expect(Post(path, "{}"), 501, std::string(path) + ": ");
  }
  HttpLimits limits;
  limits.max_body_bytes = 8;
  EdgeHarness small(limits, TestKeys());
  expect(small.Ask(EdgeHarness::Post(kChat, "{}")), 401, "");
  expect(small.Ask(EdgeHarness::Post(kChat, "{\"a\":123}",
                                     std::string("Authorization: Bearer ") + kAcmeKey + "\r\n")),
         413, "");
}

TEST_F(OllamaHttp, OverloadSaysWhenToComeBack) {
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kRefuse;
    edge.pipeline.refusal = {ApiCode::kUnavailable, "no worker", "", 3000};
  });
  const RawResponse answer = Post(kGenerate, GenerateBody());
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "3");
  EXPECT_EQ(answer.body, R"({"error":"no worker"})");
}

TEST_F(OllamaHttp, OneConnectionServesEachApiInItsOwnShape) {
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Post(kChat, "{}") + EdgeHarness::Post("/v1/completions", "{}"));
  EXPECT_TRUE(client.ReadResponse().body.starts_with(R"({"error":"model: )"));
  EXPECT_TRUE(client.ReadResponse().body.starts_with(R"({"error":{)"));
}

TEST_F(OllamaHttp, ErrorsAmidAStreamAreItsLastLine) {
  Mode(FakePipeline::Mode::kBreak);
  const RawResponse answer = Post(kChat, ChatBody());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(LinesOf(answer.body).back(), R"({"error":"the worker went away"})");
  Mode(FakePipeline::Mode::kSilentEnd);
  EXPECT_TRUE(LinesOf(Post(kGenerate, GenerateBody()).body).back().starts_with(R"({"error":")"));
}

TEST_F(OllamaHttp, AnswersThatFindNoMemoryAreRefusedAndStreamsNeedNone) {
  edge.OnLoop([&] { edge.pipeline.memory = std::make_shared<MemoryAccount>(size_t{96} << 10); });
  const std::string body =
      R"({"model":"demo","prompt":"x","options":{"num_predict":20000},"stream":)";
  EXPECT_EQ(Post(kGenerate, body + "false}").status, 503);
  EXPECT_EQ(LinesOf(Post(kGenerate, body + "true}").body).size(), 20001u);
}

TEST(OllamaHttpSilence, ASilentStreamGetsPiecesWithoutText) {
  HttpLimits limits;
  limits.sse_commit_after = 1;  // microseconds
  limits.sse_keep_alive = 1;
  EdgeHarness edge(limits);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Post(kGenerate, GenerateBody()));
  EXPECT_TRUE(Has(client.ReadUntil("\"done\":false}\n"), R"("response":"")"));
  edge.OnLoop([&] {
    for (auto& [id, live] : edge.pipeline.live) live.sink->OnWaiting("loading it");
    edge.pipeline.EndAll({ApiCode::kRateLimited, "full", "", 0});
  });
  const std::string rest = client.ReadUntil("0\r\n\r\n");
  EXPECT_TRUE(Has(rest, "{\"error\":\"full\"}\n")) << rest;
  EXPECT_FALSE(Has(rest, "loading")) << "there are no comments among lines of JSON";
}

TEST(OllamaHttpLarge, BodiesAreReadInTheBackground) {
  HttpLimits limits;
  limits.background_parse_bytes = 16;
  EdgeHarness edge(limits);
  EXPECT_EQ(edge.Ask(EdgeHarness::Post(kGenerate, GenerateBody())).status, 200);
  EXPECT_EQ(edge.Ask(EdgeHarness::Post(kChat, "{\"model\":\"demo\",\"tools\":1}")).status, 400);
}

TEST_F(OllamaHttp, ModelsAreListedShownAndSeenRunning) {
  const auto get = [&](const std::string& path) {
    const RawResponse answer = edge.Ask(EdgeHarness::Get(path));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.body;
  };
  const std::string details =
      R"("details":{"parent_model":"","format":"","family":"","families":null,)"
      R"("parameter_size":"","quantization_level":""})";
  EXPECT_EQ(get("/api/tags"),
            R"({"models":[{"name":"demo","model":"demo","size":0,"digest":"id-of-demo",)" +
                details + R"(,"modified_at":"2023-11-14T22:13:20.000000Z"}]})");
  EXPECT_EQ(get("/api/ps"),
            R"({"models":[{"name":"demo","model":"demo","size":0,"digest":"id-of-demo",)" +
                details +
                R"(,"expires_at":"9999-01-01T00:00:00Z","size_vram":0,"context_length":2048}]})");
  EXPECT_EQ(get("/api/version"), R"({"version":"0.0.0-test"})");
  EXPECT_EQ(Post("/api/show", R"({"model":"demo"})").body,
            R"({"modelfile":"","parameters":"","template":"",)" + details +
                R"(,"model_info":{"general.architecture":"unknown","general.basename":"demo",)"
                R"("unknown.context_length":2048},"capabilities":["completion"],)"
                R"("modified_at":"2023-11-14T22:13:20.000000Z"})");
}

TEST_F(OllamaHttp, OnAClusterAModelIsThereAndIsNotUnloaded) {
  const RawResponse loaded = Post(kGenerate, R"({"model":"demo","keep_alive":"1h"})");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_TRUE(Has(loaded.body, R"("response":"","done":true,"done_reason":"load")"));
  EXPECT_TRUE(Has(Post(kChat, R"({"model":"demo","messages":[]})").body,
                  R"("content":""},"done":true,"done_reason":"load")"));
  const RawResponse unloaded = Post(kGenerate, R"({"model":"demo","keep_alive":0})");
  EXPECT_EQ(unloaded.status, 501);
  EXPECT_TRUE(unloaded.body.starts_with(R"({"error":"keep_alive: )")) << unloaded.body;
  EXPECT_EQ(Post(kGenerate, R"({"model":"none"})").status, 404);
  edge.OnLoop([&] { EXPECT_TRUE(edge.pipeline.seen.empty()); });
}

// `quire serve` on loopback, without keys.
class OllamaOnMachine : public OllamaHttp {
 protected:
  OllamaOnMachine() {
    edge.OnLoop([this] {
      edge.services.models = &models;
      edge.services.routes = &MachineRoutes();
      edge.services.fleet_is_open = true;
    });
  }
  std::vector<std::string> Asked() {
    std::vector<std::string> asked;
    edge.OnLoop([&] { asked = std::exchange(models.asked, {}); });
    return asked;
  }
  using Words = std::vector<std::string>;

  FakeModels models{edge.executor};
};

TEST_F(OllamaOnMachine, WithoutAPromptAModelIsLoadedAndUnloaded) {
  EXPECT_TRUE(Has(Post(kGenerate, R"({"model":"demo:latest"})").body, R"("done_reason":"load")"));
  EXPECT_EQ(Asked(), Words{"load demo"});
  EXPECT_EQ(Post(kChat, R"({"model":"demo","messages":[],"keep_alive":-1})").status, 200);
  EXPECT_EQ(Asked(), (Words{"keep demo -1", "load demo"}));
  EXPECT_TRUE(
      Has(Post(kGenerate, R"({"model":"demo","keep_alive":0})").body, R"("done_reason":"unload")"));
  EXPECT_EQ(Asked(), Words{"unload demo"});
}

TEST_F(OllamaOnMachine, WhatAWorkerFoundInAModelIsItsDetails) {
  edge.OnLoop([&] { models.models.front().makeup = {"gguf", "gemma3", "Q4_K", 268'098'176}; });
  const std::string details =
      R"("details":{"parent_model":"","format":"gguf","family":"gemma3","families":["gemma3"],)"
      R"("parameter_size":"268.10M","quantization_level":"Q4_K"})";
  for (const char* path : {"/api/tags", "/api/ps"}) {
    EXPECT_TRUE(Has(edge.Ask(EdgeHarness::Get(path)).body, details)) << path;
  }
  const std::string shown = Post("/api/show", R"({"model":"demo"})").body;
  EXPECT_TRUE(Has(shown, details)) << shown;
  EXPECT_TRUE(Has(shown, R"("general.architecture":"gemma3")")) << shown;
  EXPECT_TRUE(Has(shown, R"("general.parameter_count":268098176)")) << shown;
  EXPECT_TRUE(Has(shown, R"("gemma3.context_length":2048)")) << shown;
}

TEST_F(OllamaOnMachine, AModelInUseIsUnloadedOnceItIsIdleAndOtherFailuresAreSaid) {
  edge.OnLoop([&] { models.failure = ApiError{ApiCode::kConflict, "it is in use", "", 0}; });
  EXPECT_EQ(Post(kGenerate, R"({"model":"demo","keep_alive":0})").status, 200);
  EXPECT_EQ(Asked(), (Words{"unload demo", "keep demo 0"}));
  edge.OnLoop([&] { models.failure = ApiError{ApiCode::kUnavailable, "no memory", "", 5000}; });
  const RawResponse failed = Post(kGenerate, R"({"model":"demo"})");
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(failed.body, R"({"error":"no memory"})");
}

TEST_F(OllamaOnMachine, AClientThatLeavesLeavesItsLoad) {
  edge.OnLoop([&] { models.ends = false; });
  {
    RawClient client = edge.Connect();
    client.Send(EdgeHarness::Post(kGenerate, R"({"model":"demo"})"));
    ASSERT_TRUE(edge.Eventually([&] { return !models.asked.empty(); }));
  }
  EXPECT_TRUE(edge.Eventually([&] { return models.left == 1; }));
}

TEST_F(OllamaOnMachine, ARequestSaysHowLongItsModelStays) {
  Post(kGenerate, GenerateBody(R"(,"keep_alive":"5m")"));
  Post(kChat, ChatBody(R"(,"keep_alive":0)"));
  Post(kChat, ChatBody());
  EXPECT_EQ(Asked(), (Words{"keep demo 300000000", "keep demo 0"}));
}

TEST_F(OllamaOnMachine, WithKeysClientsNeitherUnloadNorPin) {
  edge.OnLoop([&] { edge.services.fleet_is_open = false; });
  const RawResponse refused = Post(kGenerate, R"({"model":"demo","keep_alive":0})");
  EXPECT_EQ(refused.status, 403);
  EXPECT_TRUE(Has(refused.body, "/v2/repository/models/NAME/unload")) << refused.body;
  EXPECT_EQ(Post(kGenerate, GenerateBody(R"(,"keep_alive":-1)")).status, 200);
  EXPECT_EQ(Post(kGenerate, R"({"model":"demo","keep_alive":-1})").status, 200);
  EXPECT_EQ(Asked(), Words{"load demo"});
}

serve::JobNews Progress(int64_t completed) {
  serve::JobNews news;
  news.status = "pulling";
  news.total = 10;
  news.completed = completed;
  return news;
}
serve::JobNews Ended(const std::string& error = "", absl::StatusCode code = {}) {
  serve::JobNews news;
  news.done = true;
  news.error = error;
  news.code = static_cast<int>(code);
  return news;
}

TEST_F(OllamaOnMachine, APullStreamsItsProgress) {
  RawClient client = edge.Connect();
  client.Send(EdgeHarness::Post("/api/pull", R"({"model":"hf:a/b"})"));
  ASSERT_TRUE(edge.Eventually([&] { return models.jobs.contains("pull hf:a/b"); }));
  edge.OnLoop([&] {
    const JobProgress progress = models.jobs["pull hf:a/b"];
    progress(Progress(4));
    progress(Ended());
  });
  const RawResponse answer = client.ReadResponse();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
  EXPECT_EQ(answer.body,
            "{\"status\":\"pulling\",\"total\":10,\"completed\":4}\n{\"status\":\"success\"}\n");
}

TEST_F(OllamaOnMachine, APullFailsWithAStatusOrInItsLastLine) {
  const auto pull = [&](const std::string& stream, bool begun, const serve::JobNews& end) {
    RawClient client = edge.Connect();
    edge.OnLoop([&] { models.jobs.clear(); });
    client.Send(EdgeHarness::Post("/api/pull", R"({"name":"tiny","stream":)" + stream + "}"));
    EXPECT_TRUE(edge.Eventually([&] { return models.jobs.contains("pull tiny"); }));
    edge.OnLoop([&] {
      const JobProgress progress = models.jobs["pull tiny"];
      if (begun) progress(Progress(1));
      progress(end);
    });
    return client.ReadResponse();
  };
  const serve::JobNews absent = Ended("there is no such model", absl::StatusCode::kNotFound);
  EXPECT_EQ(pull("false", true, Ended()).body, R"({"status":"success"})");
  for (const char* stream : {"false", "true"}) {
    const RawResponse answer = pull(stream, false, absent);
    EXPECT_EQ(answer.status, 404) << stream;
    EXPECT_EQ(answer.body, R"({"error":"there is no such model"})");
  }
  const RawResponse late = pull("true", true, absent);
  EXPECT_EQ(late.status, 200);
  EXPECT_EQ(LinesOf(late.body).back(), R"({"error":"there is no such model"})");
  using Code = absl::StatusCode;
  const std::pair<Code, int> statuses[] = {
      {Code::kInvalidArgument, 400},   {Code::kAlreadyExists, 409}, {Code::kPermissionDenied, 403},
      {Code::kResourceExhausted, 413}, {Code::kUnavailable, 503},   {Code::kDataLoss, 500},
  };
  for (const auto& [code, status] : statuses) {
    EXPECT_EQ(pull("false", false, Ended("why", code)).status, status);
  }
}

TEST_F(OllamaOnMachine, WhatAClientMayNotPullIsRefused) {
  for (const char* name : {"https://host/m.gguf", "/etc/passwd", "--flag", "s3://b/m"}) {
    const RawResponse answer = Post("/api/pull", std::string(R"({"model":")") + name + R"("})");
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_TRUE(answer.body.starts_with(R"({"error":"model: may be a short name)")) << answer.body;
  }
  EXPECT_EQ(Post("/api/pull", "{}").status, 400);
  edge.OnLoop([&] { models.failure = ApiError{ApiCode::kUnavailable, "4 run already", "", 5000}; });
  const RawResponse full = Post("/api/pull", R"({"model":"tiny"})");
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.headers.at("retry-after"), "5");
  EXPECT_EQ(Asked(), Words{"pull tiny"});
}

TEST_F(OllamaOnMachine, AClientThatLeavesLeavesItsPull) {
  {
    RawClient client = edge.Connect();
    client.Send(EdgeHarness::Post("/api/pull", R"({"model":"tiny"})"));
    ASSERT_TRUE(edge.Eventually([&] { return !models.jobs.empty(); }));
  }
  EXPECT_TRUE(edge.Eventually([&] { return models.left == 1; }));
}

TEST_F(OllamaOnMachine, AModelIsUnloadedAndRemoved) {
  const auto remove = [](const std::string& body) {
    std::string request = EdgeHarness::Post("/api/delete", body);
    return request.replace(0, 4, "DELETE");
  };
  const auto ends = [&](const serve::JobNews& end) {
    RawClient client = edge.Connect();
    edge.OnLoop([&] { models.jobs.clear(); });
    client.Send(remove(R"({"model":"demo:latest"})"));
    EXPECT_TRUE(edge.Eventually([&] { return models.jobs.contains("remove demo"); }));
    edge.OnLoop([&] {
      const JobProgress progress = models.jobs["remove demo"];
      progress(end);
    });
    return client.ReadResponse();
  };
  const RawResponse removed = ends(Ended());
  EXPECT_EQ(removed.status, 200);
  EXPECT_EQ(removed.body, R"({"status":"success"})");
  EXPECT_EQ(Asked(), (Words{"unload demo", "remove demo"}));
  EXPECT_EQ(ends(Ended("it was not pulled", absl::StatusCode::kInvalidArgument)).status, 400);
  EXPECT_EQ(edge.Ask(remove(R"({"model":"none"})")).status, 404);
  EXPECT_EQ(edge.Ask(remove("{}")).status, 400);
  Asked();
  edge.OnLoop([&] { models.failure = ApiError{ApiCode::kConflict, "it is in use", "", 0}; });
  const RawResponse busy = edge.Ask(remove(R"({"model":"demo"})"));
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(Asked(), Words{"unload demo"});
}

TEST_F(OllamaOnMachine, ListsSayWhatTheMachineHas) {
  EXPECT_TRUE(Has(edge.Ask(EdgeHarness::Get("/api/tags")).body, R"("size":1000,)"));
  const std::string running = edge.Ask(EdgeHarness::Get("/api/ps")).body;
  EXPECT_TRUE(Has(running, R"("size":3000,)")) << running;
  EXPECT_TRUE(Has(running, R"("expires_at":"2023-11-14T22:18:20.000000Z")")) << running;
  edge.OnLoop([&] { models.models[0].state = serve::ModelState::kAbsent; });
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/api/ps")).body, R"({"models":[]})");
}

}  // namespace
}  // namespace quire
