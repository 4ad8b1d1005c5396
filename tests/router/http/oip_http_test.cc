// The Open Inference Protocol over REST.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

constexpr char kDemo[] = "/v2/models/demo";

class OipHttp : public testing::Test {
 protected:
  RawResponse Ask(const std::string& verb, const std::string& body,
                  const std::string& headers = "") {
    return edge.Ask(EdgeHarness::Post(kDemo + verb, body, headers));
  }
  RawResponse Get(const std::string& path) { return edge.Ask(EdgeHarness::Get(path)); }
  void ExpectRefused(const std::string& verb, const std::string& body, const std::string& named) {
    const RawResponse refused = Ask(verb, body);
    EXPECT_EQ(refused.status, 400) << body << "\n" << refused.body;
    EXPECT_TRUE(refused.body.starts_with("{\"error\":\"")) << refused.body;
    EXPECT_NE(refused.body.find(named), std::string::npos) << refused.body;
  }

  EdgeHarness edge;
};

TEST_F(OipHttp, HealthBodiesAreWhatClientsRead) {
  EXPECT_EQ(Get("/v2/health/live").body, R"({"live":true})");
  EXPECT_EQ(Get("/v2/health/ready").body, R"({"ready":true})");
  edge.OnLoop([&] { edge.pipeline.healthy = false; });
  EXPECT_EQ(Get("/v2/health/live").status, 200);
  EXPECT_EQ(Get("/v2/health/ready").status, 503);
  EXPECT_EQ(Get("/v2/health/ready").body, R"({"ready":false})");
}

TEST_F(OipHttp, ServerAndModelsTellOfThemselves) {
  EXPECT_EQ(
      Get("/v2").body,
      R"({"name":"quire","version":"0.0.0-test","extensions":["generate","binary_tensor_data"]})");
  EXPECT_EQ(Get("/v2/models").body, R"({"models":["demo"]})");
  for (const char* path : {"/v2/models/demo", "/v2/models/demo/versions/1"}) {
    const RawResponse model = Get(path);
    EXPECT_EQ(model.status, 200);
    EXPECT_TRUE(model.body.starts_with(
        R"({"name":"demo","versions":["1"],"platform":"quire","inputs":[{"name":"text_input",)"
        R"("datatype":"BYTES","shape":[1]})"))
        << model.body;
  }
  EXPECT_EQ(Get("/v2/models/demo/ready").body, R"({"name":"demo","ready":true})");
  EXPECT_EQ(Get("/v2/models/demo/versions/1/ready").status, 200);
  EXPECT_EQ(Get("/v2/models/demo/versions/2/ready").status, 404);
  EXPECT_EQ(Get("/v2/models/other").body, R"({"error":"model: \"other\" is not served"})");
  EXPECT_EQ(Get("/v2/models/a/b/ready").status, 404);
}

TEST_F(OipHttp, PathsThatAreNotServedAnswerInTheProtocolsShape) {
  EXPECT_EQ(Get("/v2/nothing").body,
            R"({"error":"nothing is served at GET /v2/nothing; try /v1/models"})");
  EXPECT_EQ(Get("/v2/nothing").status, 404);
  EXPECT_NE(Get("/v2nothing").body.find(R"("type":"invalid_request_error")"), std::string::npos);
}

TEST_F(OipHttp, InferAnswersInTensors) {
  const RawResponse answer = Ask("/versions/1/infer", R"({"id":"7","inputs":[
    {"name":"text_input","datatype":"BYTES","shape":[1,1],"data":[["x"]]},
    {"name":"sampling_parameters","datatype":"BYTES","shape":[1],"data":["{\"max_tokens\":2}"]},
    {"name":"return_num_output_tokens","datatype":"BOOL","shape":[1],"data":[true]}],
    "parameters":{"seed":4}})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body,
            R"({"id":"7","model_name":"demo","model_version":"1","outputs":[)"
            R"({"name":"text_output","datatype":"BYTES","shape":[1],"data":["tok0 tok1"]},)"
            R"({"name":"output_ids","datatype":"INT32","shape":[2],"data":[100,101]},)"
            R"({"name":"finish_reason","datatype":"BYTES","shape":[1],"data":["length"]},)"
            R"({"name":"num_output_tokens","datatype":"UINT32","shape":[1],"data":[2]}]})");
  EXPECT_EQ(answer.headers.at("x-quire-worker"), "w0");
  edge.OnLoop([&] {
    EXPECT_EQ(edge.pipeline.seen[0].sampling.seed, 4u);
    EXPECT_FALSE(edge.pipeline.seen[0].streaming);
  });
  const RawResponse named = Ask("/infer", R"({"model_name":"demo","inputs":[
    {"name":"input_ids","datatype":"INT64","shape":[3],"data":[5,6,7.0]}],
    "outputs":[{"name":"text_output"}],"parameters":{"max_tokens":1}})");
  EXPECT_EQ(named.body,
            R"({"model_name":"demo","model_version":"1","outputs":[)"
            R"({"name":"text_output","datatype":"BYTES","shape":[1],"data":["tok0"]}]})");
}

TEST_F(OipHttp, GenerateTakesMembersAndParameters) {
  const char* const bodies[] = {
      R"({"text_input":"x","parameters":{"max_tokens":2,"stream":false}})",
      R"({"text_input":"x","max_tokens":2})",
      R"({"text_input":"x","sampling_parameters":{"max_tokens":2},"id":null})",
      R"({"text_input":"x","sampling_parameters":"{\"max_tokens\":\"2\"}"})",
      R"({"input_ids":[1,2],"stream":false,"parameters":{"max_tokens":2}})",
  };
  for (const char* body : bodies) {
    EXPECT_EQ(Ask("/generate", body).body,
              R"({"model_name":"demo","model_version":"1","text_output":"tok0 tok1",)"
              R"("output_ids":[100,101],"finish_reason":"length"})")
        << body;
  }
  const RawResponse detailed = Ask("/generate", R"({"id":"7","text_input":"x",
    "parameters":{"max_tokens":1,"details":true}})");
  EXPECT_NE(detailed.body.find(R"({"id":"7",)"), std::string::npos) << detailed.body;
  EXPECT_NE(detailed.body.find(R"("details":{"finish_reason":"length"})"), std::string::npos);
}

TEST_F(OipHttp, GenerateStreamsAsEvents) {
  const RawResponse answer =
      Ask("/generate_stream", R"({"text_input":"x","parameters":{"max_tokens":2}})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(answer.headers.at("x-quire-worker"), "w0");
  const std::string head = R"(data: {"model_name":"demo","model_version":"1",)";
  EXPECT_EQ(answer.body, head + R"("text_output":"tok0","output_ids":[100]})" + "\n\n" + head +
                             R"("text_output":" tok1","output_ids":[101]})" + "\n\n" + head +
                             R"("text_output":"","output_ids":[],"finish_reason":"length"})" +
                             "\n\n");
  const RawResponse whole =
      Ask("/generate_stream", R"({"text_input":"x","stream":false,"max_tokens":2})");
  EXPECT_EQ(whole.body, head + R"("text_output":"tok0 tok1","output_ids":[100,101],)" +
                            R"("finish_reason":"length"})" + "\n\n");
}

TEST_F(OipHttp, AStreamThatBreaksEndsInAnError) {
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kBreak; });
  const std::string body = R"({"text_input":"x","max_tokens":5})";
  const RawResponse answer = Ask("/generate_stream", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.ends_with("data: {\"error\":\"the worker went away\"}\n\n"));
  EXPECT_EQ(Ask("/generate", body).status, 503);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kSilentEnd; });
  EXPECT_NE(Ask("/generate_stream", body).body.find("without a finish reason"), std::string::npos);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kRefuse; });
  const RawResponse refused = Ask("/generate_stream", body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "2");
  EXPECT_EQ(refused.body, R"({"error":"the queue is full"})");
}

TEST_F(OipHttp, SlowReadersHoldTheirWindowBack) {
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kFlood; });
  const RawResponse answer = Ask("/generate_stream", R"({"text_input":"x","max_tokens":500})");
  EXPECT_NE(answer.body.find("tok499"), std::string::npos);
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, edge.pipeline.window); });
}

TEST_F(OipHttp, AClientThatLeavesIsCancelled) {
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  {
    RawClient client = edge.Connect();
    client.Send(
        EdgeHarness::Post(std::string(kDemo) + "/generate_stream", R"({"text_input":"x"})"));
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
}

TEST_F(OipHttp, BadBodiesNameWhatIsWrong) {
  const auto tensor = [](const std::string& members) {
    return R"({"inputs":[{"name":"text_input",)" + members + "}]}";
  };
  ExpectRefused("/infer", "[]", "JSON object");
  ExpectRefused("/infer", "{", "JSON object");
  ExpectRefused("/infer", "{}", "inputs");
  ExpectRefused("/infer", R"({"inputs":[],"text_input":"x"})", "text_input");
  ExpectRefused("/infer", R"({"inputs":[]})", "text_input");
  ExpectRefused("/infer", R"({"inputs":[],"model_name":"other"})", "model_name");
  ExpectRefused("/infer", R"({"inputs":[1]})", "inputs");
  ExpectRefused("/infer", R"({"inputs":[{"datatype":"BYTES"}]})", "inputs");
  ExpectRefused("/infer", tensor(R"("datatype":"BYTES","shape":[1])"), "text_input");
  ExpectRefused("/infer", tensor(R"("datatype":"BYTES","data":["x"])"), "shape");
  ExpectRefused("/infer", tensor(R"("datatype":"BYTES","shape":[2],"data":["x","y"])"),
                "text_input");
  ExpectRefused("/infer", tensor(R"("datatype":"BYTES","shape":[1],"data":["x",1])"), "text_input");
  ExpectRefused("/infer", tensor(R"("datatype":"BYTES","shape":[1],"data":[1.5])"), "text_input");
  ExpectRefused("/infer", tensor(R"("datatype":"INT32","shape":[1],"data":["x"])"), "text_input");
  ExpectRefused("/infer",
                tensor(R"("datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5})"),
                "binary_data_size");
  ExpectRefused(
      "/infer",
      tensor(R"("datatype":"BYTES","shape":[1],"parameters":{"shared_memory_region":"m"})"),
      "shared_memory_region");
  ExpectRefused("/infer", R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],
    "data":["x"]}],"outputs":[{"name":"text_output","parameters":{"binary_data":1}}]})",
                "binary_data");
  ExpectRefused("/infer", R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],
    "data":["x"]}],"outputs":[{"name":"text_output","parameters":{"classification":3}}]})",
                "classification");
  ExpectRefused("/generate", "{}", "text_input");
  ExpectRefused("/generate", R"({"text_input":7})", "text_input");
  ExpectRefused("/generate", R"({"text_input":["a","b"]})", "text_input");
  ExpectRefused("/generate", R"({"text_input":"x","unheard_of":1})", "unheard_of");
  ExpectRefused("/generate", R"({"text_input":"x","parameters":{"parameters":{}}})", "parameters");
  ExpectRefused("/generate", R"({"text_input":"x","parameters":1})", "parameters");
  ExpectRefused("/generate", R"({"text_input":"x","stream":true})", "stream");
  ExpectRefused("/generate", R"({"text_input":"x","n":2})", "n: must be 1");
  ExpectRefused("/versions/2/generate", R"({"text_input":"x"})", "model_version");
  EXPECT_EQ(Ask("/explain", R"({"text_input":"x"})").status, 404);
  EXPECT_EQ(Ask("/generate", R"({"text_input":"x"})", "x-quire-timeout: never\r\n").status, 400);
  EXPECT_EQ(
      edge.Ask(EdgeHarness::Post("/v2/models/other/generate", R"({"text_input":"x"})")).status,
      404);
}

// Triton's binary tensor data extension.
std::string InBytes(const std::string& text) {
  const std::string raw = std::string({static_cast<char>(text.size()), 0, 0, 0}) + text;
  return R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"parameters":)"
         R"({"binary_data_size":)" +
         std::to_string(raw.size()) + "}}]%s}" + raw;
}

TEST_F(OipHttp, TensorsTravelAsBytesBehindTheJson) {
  const auto ask = [&](const std::string& more, const std::string& text) {
    std::string body = InBytes(text);
    body.replace(body.find("%s"), 2, more);
    const size_t json = body.size() - text.size() - 4;
    return Ask("/infer", body, "Inference-Header-Content-Length: " + std::to_string(json) + "\r\n");
  };
  const RawResponse as_json = ask(R"(,"parameters":{"max_tokens":2})", "abc");
  ASSERT_EQ(as_json.status, 200) << as_json.body;
  EXPECT_EQ(as_json.headers.count("inference-header-content-length"), 0u) << "not asked for";
  EXPECT_NE(as_json.body.find(R"("data":["tok0 tok1"])"), std::string::npos) << as_json.body;
  edge.OnLoop(
      [&] { EXPECT_EQ(std::get<TextPrompt>(edge.pipeline.seen.back().prompt).text, "abc"); });
  const RawResponse all = ask(R"(,"parameters":{"max_tokens":2,"binary_data_output":true})", "abc");
  ASSERT_EQ(all.status, 200) << all.body;
  EXPECT_EQ(all.headers.at("content-type"), "application/octet-stream");
  const size_t json = std::stoul(all.headers.at("inference-header-content-length"));
  EXPECT_EQ(all.body.substr(0, json),
            R"({"model_name":"demo","model_version":"1","outputs":[)"
            R"({"name":"text_output","datatype":"BYTES","shape":[1],"parameters":)"
            R"({"binary_data_size":13}},)"
            R"({"name":"output_ids","datatype":"INT32","shape":[2],"parameters":)"
            R"({"binary_data_size":8}},)"
            R"({"name":"finish_reason","datatype":"BYTES","shape":[1],"parameters":)"
            R"({"binary_data_size":10}}]})");
  const std::string raw = std::string("\x09\0\0\0tok0 tok1", 13) +
                          std::string("\x64\0\0\0\x65\0\0\0", 8) +
                          std::string("\x06\0\0\0length", 10);
  EXPECT_EQ(all.body.substr(json), raw);
  const RawResponse one = ask(R"(,"parameters":{"max_tokens":2},"outputs":[{"name":"text_output"},)"
                              R"({"name":"output_ids","parameters":{"binary_data":true}}])",
                              "abc");
  ASSERT_EQ(one.status, 200) << one.body;
  EXPECT_NE(one.body.find(R"("data":["tok0 tok1"])"), std::string::npos) << one.body;
  EXPECT_TRUE(one.body.ends_with(std::string("\x64\0\0\0\x65\0\0\0", 8)));
}

TEST_F(OipHttp, BytesThatDoNotFitTheirJsonAreRefused) {
  std::string body = InBytes("abc");
  body.replace(body.find("%s"), 2, "");
  const size_t json = body.size() - 7;
  const auto refused = [&](const std::string& text, const std::string& length,
                           const std::string& named) {
    const RawResponse answer =
        Ask("/infer", text, "Inference-Header-Content-Length: " + length + "\r\n");
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(named), std::string::npos) << answer.body;
  };
  refused(body, "x", "Inference-Header-Content-Length");
  refused(body, "-1", "Inference-Header-Content-Length");
  refused(body, std::to_string(body.size() + 1), "Inference-Header-Content-Length");
  refused(body, "18446744073709551617", "Inference-Header-Content-Length");
  refused(body, "0", "JSON object");
  refused(body, std::to_string(json - 1), "JSON object");
  refused(body + "x", std::to_string(json), "no tensor's binary_data_size claims");
  refused(body.substr(0, body.size() - 1), std::to_string(json), "text_input");
  std::string wrong = body;
  wrong[json] = 9;  // the element's own length
  refused(wrong, std::to_string(json), "text_input");
  std::string twice = body;
  twice.replace(twice.find("\"shape\""), 7, "\"data\":[\"x\"],\"shape\"");
  refused(twice, std::to_string(json + 13), "one of the two");
  std::string negative = body;
  negative.replace(negative.find(":7}"), 3, ":-7}");
  refused(negative, std::to_string(json + 1), "binary_data_size");
}

TEST_F(OipHttp, LargeBodiesAreReadInTheBackground) {
  const std::string text((300u << 10), 'a');
  EXPECT_EQ(Ask("/generate", R"({"text_input":")" + text + R"(","max_tokens":1})").status, 200);
  ExpectRefused("/generate", R"({"text_input":")" + text + R"(","max_tokens":-1})", "max_tokens");
}

}  // namespace
}  // namespace quire
