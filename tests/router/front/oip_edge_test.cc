// Clients of the Open Inference Protocol against the whole edge.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "inference/open_inference.grpc.pb.h"
#include "tests/router/support/grpc_edge.h"

namespace quire {
namespace {

using Stub = inference::GRPCInferenceService::Stub;
using Request = inference::ModelInferRequest;
using Response = inference::ModelStreamInferResponse;
using Stream = grpc::ClientReaderWriter<Request, Response>;

std::unique_ptr<Stub> Connect(const GrpcEdge& edge) {
  return inference::GRPCInferenceService::NewStub(
      grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials()));
}

Request Prompted(const std::string& id, int max_tokens) {
  Request request;
  request.set_model_name("demo");
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents("x");
  (*request.mutable_parameters())["max_tokens"].set_int64_param(max_tokens);
  (*request.mutable_parameters())["binary_data_output"].set_bool_param(false);
  return request;
}

Request Whole(const std::string& id, int max_tokens) {
  Request request = Prompted(id, max_tokens);
  auto& input = *request.add_inputs();
  input.set_name("stream");
  input.set_datatype("BOOL");
  input.add_shape(1);
  input.mutable_contents()->add_bool_contents(false);
  return request;
}

struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  std::string finish_reason;
  std::string error;
  int responses = 0;
  int finals = 0;  // responses that say that they are the last
  bool final_last = false;
  int last_outputs = 0;  // of the last response
};

void Take(const Response& response, std::map<std::string, Answer>& answers) {
  const inference::ModelInferResponse& part = response.infer_response();
  Answer& answer = answers[part.id()];
  ++answer.responses;
  answer.error += response.error_message();
  answer.final_last = part.parameters().at("triton_final_response").bool_param();
  answer.finals += answer.final_last ? 1 : 0;
  answer.last_outputs = part.outputs_size();
  for (const auto& output : part.outputs()) {
    const auto& contents = output.contents();
    if (output.name() == "text_output") answer.text += contents.bytes_contents(0);
    if (output.name() == "finish_reason") answer.finish_reason = contents.bytes_contents(0);
    if (output.name() != "output_ids") continue;
    EXPECT_EQ(output.shape(0), contents.int_contents_size());
    for (const int32_t id : contents.int_contents()) answer.ids.push_back(id);
  }
}

std::map<std::string, Answer> ReadAll(Stream& stream) {
  std::map<std::string, Answer> answers;
  Response response;
  while (stream.Read(&response)) Take(response, answers);
  return answers;
}

TEST(OipEdge, ServerAndModelsTellOfThemselves) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  const auto call = [](auto ask) {
    grpc::ClientContext context;
    return ask(context).error_code();
  };
  inference::ServerLiveResponse live;
  inference::ServerReadyResponse ready;
  inference::ModelReadyResponse model_ready;
  inference::ServerMetadataResponse server;
  inference::ModelMetadataResponse metadata;
  inference::ModelConfigResponse config;
  call([&](auto& c) { return stub->ServerLive(&c, {}, &live); });
  EXPECT_TRUE(live.live());
  call([&](auto& c) { return stub->ServerReady(&c, {}, &ready); });
  EXPECT_TRUE(ready.ready());
  edge.OnLoop([&] { edge.pipeline.healthy = false; });
  call([&](auto& c) { return stub->ServerReady(&c, {}, &ready); });
  EXPECT_FALSE(ready.ready());
  call([&](auto& c) { return stub->ServerMetadata(&c, {}, &server); });
  EXPECT_EQ(server.name(), "quire");
  inference::ModelMetadataRequest about;
  about.set_name("demo");
  call([&](auto& c) { return stub->ModelMetadata(&c, about, &metadata); });
  EXPECT_EQ(metadata.inputs(0).name(), "text_input");
  inference::ModelConfigRequest config_of;
  config_of.set_name("demo");
  config_of.set_version("1");
  call([&](auto& c) { return stub->ModelConfig(&c, config_of, &config); });
  EXPECT_TRUE(config.config().model_transaction_policy().decoupled());
  inference::ModelReadyRequest of_model;
  of_model.set_name("demo");
  call([&](auto& c) { return stub->ModelReady(&c, of_model, &model_ready); });
  EXPECT_TRUE(model_ready.ready());
  of_model.set_version("2");
  EXPECT_EQ(call([&](auto& c) { return stub->ModelReady(&c, of_model, &model_ready); }),
            grpc::StatusCode::INVALID_ARGUMENT);
  about.set_name("other");
  EXPECT_EQ(call([&](auto& c) { return stub->ModelMetadata(&c, about, &metadata); }),
            grpc::StatusCode::NOT_FOUND);
}

TEST(OipEdge, InferAnswersWithTheWholeText) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  inference::ModelInferResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->ModelInfer(&context, Prompted("a", 4), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "a");
  ASSERT_EQ(response.outputs_size(), 3);
  EXPECT_EQ(response.outputs(0).contents().bytes_contents(0), "tok0 tok1 tok2 tok3");
  EXPECT_EQ(response.outputs(1).contents().int_contents_size(), 4);
  EXPECT_EQ(response.outputs(2).contents().bytes_contents(0), "length");
  edge.OnLoop([&] {
    EXPECT_EQ(edge.pipeline.seen[0].request_id, "a");
    EXPECT_FALSE(edge.pipeline.seen[0].streaming);
  });
}

TEST(OipEdge, InferRefusesByStatus) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  const auto ask = [&](const Request& request) {
    inference::ModelInferResponse response;
    grpc::ClientContext context;
    return stub->ModelInfer(&context, request, &response);
  };
  Request bad = Prompted("a", 1);
  bad.mutable_inputs(0)->set_shape(0, 2);
  EXPECT_EQ(ask(bad).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(ask(bad).error_message().find("text_input"), std::string::npos);
  Request unknown = Prompted("a", 1);
  unknown.set_model_name("other");
  EXPECT_EQ(ask(unknown).error_code(), grpc::StatusCode::NOT_FOUND);
  for (const auto mode : {FakePipeline::Mode::kBreak, FakePipeline::Mode::kSilentEnd}) {
    edge.OnLoop([&] { edge.pipeline.mode = mode; });
    EXPECT_FALSE(ask(Prompted("a", 5)).ok());
  }
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kRefuse; });
  EXPECT_EQ(ask(Prompted("a", 1)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(OipEdge, AnInferWhoseClientLeavesIsCancelled) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  std::thread caller([&] {
    inference::ModelInferResponse response;
    EXPECT_EQ(stub->ModelInfer(&context, Prompted("a", 1), &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  context.TryCancel();
  caller.join();
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
}

TEST(OipEdge, StreamsRunManyRequestsAtOnce) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  Request with_empty_final = Prompted("c", 2);
  (*with_empty_final.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(
      true);
  stream->Write(Prompted("a", 5));
  stream->Write(Whole("b", 4));
  stream->Write(with_empty_final);
  stream->WritesDone();  // they are finished all the same
  const std::map<std::string, Answer> answers = ReadAll(*stream);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(answers.size(), 3u);
  for (const auto& [id, tokens] : {std::pair("a", 5), std::pair("b", 4), std::pair("c", 2)}) {
    const Answer& answer = answers.at(id);
    EXPECT_EQ(answer.ids.size(), static_cast<size_t>(tokens)) << id;
    EXPECT_EQ(answer.finish_reason, "length");
    EXPECT_EQ(answer.finals, 1);
    EXPECT_TRUE(answer.final_last);
    EXPECT_EQ(answer.error, "");
  }
  EXPECT_EQ(answers.at("a").text, "tok0 tok1 tok2 tok3 tok4");
  EXPECT_GE(answers.at("a").responses, 5);
  EXPECT_EQ(answers.at("b").text, "tok0 tok1 tok2 tok3");
  EXPECT_EQ(answers.at("b").responses, 1);
  EXPECT_EQ(answers.at("c").last_outputs, 0);
}

TEST(OipEdge, EachRequestOfAStreamNamesItsTraceOnce) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Prompted("a", 3));
  stream->Write(Prompted("b", 3));
  stream->WritesDone();
  std::map<std::string, std::string> traced;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    const auto& parameters = response.infer_response().parameters();
    const auto found = parameters.find("traceresponse");
    if (found == parameters.end()) continue;
    EXPECT_EQ(traced.count(response.infer_response().id()), 0u);
    traced[response.infer_response().id()] = found->second.string_param();
  }
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(traced.size(), 2u);
  EXPECT_EQ(traced["a"].substr(0, 36), "00-4bf92f3577b34da6a3ce929d0e0e4736-");
  EXPECT_NE(traced["a"], traced["b"]) << "each has a span of its own";
}

// Outputs and their end in one turn of the loop, as a worker's frame brings them.
TEST(OipEdge, TheLastStepCarriesTheEnd) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Prompted("a", 2));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  const auto step = [&](uint64_t index, bool last) {
    edge.OnLoop([&] {
      FakePipeline::Live live = edge.pipeline.live.begin()->second;
      if (index == 0) live.sink->OnStarted(FakePipeline::StartedFor(live.request));
      live.sink->OnDelta(FakePipeline::Token(0, index));
      if (!last) return;
      edge.pipeline.live.clear();
      Delta rest;
      rest.first_index = index + 1;
      rest.text = "!";
      live.sink->OnDelta(rest);
      live.sink->OnChoiceEnd({0, "stop", {}, {}});
      live.sink->OnFinished({});
    });
  };
  step(0, false);
  step(1, true);
  stream->WritesDone();
  const Answer answer = ReadAll(*stream).at("a");
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answer.responses, 2);
  EXPECT_EQ(answer.text, "tok0 tok1!");
  EXPECT_EQ(answer.finish_reason, "stop");
  EXPECT_TRUE(answer.final_last);
}

TEST(OipEdge, ARequestsErrorLeavesTheOthersRunning) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Prompted("a", 3));
  Request bad = Prompted("b", 3);
  bad.mutable_inputs(0)->set_name("prompt");
  stream->Write(bad);
  stream->Write(Prompted("a", 3));  // its id is taken
  std::map<std::string, Answer> answers;
  for (int i = 0; i < 2; ++i) {
    Response response;
    ASSERT_TRUE(stream->Read(&response));
    Take(response, answers);
  }
  EXPECT_NE(answers["b"].error.find("prompt"), std::string::npos);
  EXPECT_NE(answers["a"].error.find("running already"), std::string::npos);
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.live.size(), 1u);
    edge.pipeline.mode = FakePipeline::Mode::kEcho;
  });
  stream->Write(Prompted("c", 2));
  stream->Write(Prompted("d", 2));
  edge.OnLoop([&] {
    FakePipeline::Live live = edge.pipeline.live.begin()->second;
    edge.pipeline.live.erase(edge.pipeline.live.begin());
    live.sink->OnError({ApiCode::kInternal, "broke", "", 0});
  });
  stream->Write(Prompted("a", 2));  // free again
  stream->WritesDone();
  answers = ReadAll(*stream);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answers["a"].error, "broke");
  for (const char* id : {"a", "c", "d"}) EXPECT_EQ(answers[id].ids.size(), 2u) << id;
}

TEST(OipEdge, ACallThatIsCancelledCancelsItsRequests) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  for (const char* id : {"a", "b", "c"}) stream->Write(Prompted(id, 3));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 3; }));
  context.TryCancel();
  EXPECT_TRUE(ReadAll(*stream).empty());
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 3; }));
}

TEST(OipEdge, RequestsPastTheCallsLimitAreRefusedInIt) {
  GrpcEdgeLimits limits;
  limits.max_requests_per_call = 2;
  GrpcEdge edge({}, {}, nullptr, limits);
  LimitCounters counters(edge.metrics);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kManual;
    edge.grpc_services.request_limits.counters = &counters;
  });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  for (const char* id : {"a", "b", "c"}) stream->Write(Prompted(id, 3));
  Response response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.infer_response().id(), "c");
  EXPECT_NE(response.error_message().find("--max-requests-per-call"), std::string::npos);
  EXPECT_EQ(counters.call_requests.value(), 1u);
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.live.size(), 2u); });
  context.TryCancel();
  ReadAll(*stream);
  (void)stream->Finish();
}

TEST(OipEdge, WhatNoMessageHoldsIsAnErrorOfItsRequest) {
  GrpcEdgeLimits limits;
  limits.max_send_bytes = 1000;
  GrpcEdge edge({}, {}, nullptr, limits);
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Whole("long", 400));
  stream->Write(Prompted("steps", 400));
  stream->WritesDone();
  const std::map<std::string, Answer> answers = ReadAll(*stream);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_NE(answers.at("long").error.find("more than one message may hold"), std::string::npos);
  EXPECT_EQ(answers.at("long").finals, 1);
  EXPECT_EQ(answers.at("steps").ids.size(), 400u);
  grpc::ClientContext whole;
  inference::ModelInferResponse response;
  EXPECT_EQ(stub->ModelInfer(&whole, Prompted("a", 400), &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A client that asks wrongly and never reads is not read from for ever.
TEST(OipEdge, ErrorsThatNobodyReadsAreBounded) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  Request bad = Prompted(std::string(1000, 'i'), 1);  // an error carries id and model
  bad.set_model_name(std::string(1000, 'm'));
  bad.set_model_version("9");
  constexpr int kRequests = 10'000;
  std::thread writer([&] {
    for (int i = 0; i < kRequests && stream->Write(bad); ++i) {
    }
    stream->WritesDone();
  });
  EXPECT_TRUE(edge.Eventually([&] { return edge.counters.grpc_stream_pauses.value() > 0; }));
  EXPECT_LT(edge.counters.grpc_stream_requests.value(), static_cast<uint64_t>(kRequests));
  int errors = 0;
  Response response;
  while (stream->Read(&response)) errors += response.error_message().empty() ? 0 : 1;
  writer.join();
  EXPECT_EQ(errors, kRequests);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(OipEdge, SlowReadersHoldTheirWindowBackAndGetEverything) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kFlood; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Prompted("a", 3000));
  stream->WritesDone();
  EXPECT_EQ(ReadAll(*stream).at("a").ids.size(), 3000u);
  EXPECT_TRUE(stream->Finish().ok());
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, edge.pipeline.window); });
}

}  // namespace
}  // namespace quire
