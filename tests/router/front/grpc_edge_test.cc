// gRPC clients against the whole edge, through the front and its guard.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "router/link/one_poller_grpc.h"
#include "tests/router/support/grpc_edge.h"

namespace quire {
namespace {

using Stub = v1::Inference::Stub;

std::unique_ptr<Stub> Connect(const GrpcEdge& edge, size_t port = 1) {
  return v1::Inference::NewStub(
      grpc::CreateChannel(edge.Target(port), grpc::InsecureChannelCredentials()));
}

struct Answer {
  grpc::Status status;
  v1::Started started;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<v1::Done> done;
  v1::Usage usage;
  int messages = 0;
};

void Take(const v1::GenerateResponse& event, Answer& answer) {
  if (event.has_started()) answer.started = event.started();
  if (event.has_delta()) {
    EXPECT_EQ(event.delta().first_index(), answer.ids.size());
    answer.text += event.delta().text();
    for (const int32_t id : event.delta().token_ids()) answer.ids.push_back(id);
  }
  if (event.has_done()) answer.done.push_back(event.done());
  if (event.has_usage()) answer.usage = event.usage();
}

template <class Reader>
Answer ReadAll(Reader& reader) {
  Answer answer;
  v1::GenerateResponse response;
  while (reader.Read(&response)) {
    ++answer.messages;
    Take(response, answer);
    for (const v1::GenerateResponse& event : response.more()) Take(event, answer);
  }
  answer.status = reader.Finish();
  return answer;
}

Answer Generate(Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, request);
  return ReadAll(*reader);
}

v1::GenerateRequest Prompted(int max_tokens) {
  v1::GenerateRequest request;
  request.set_text("x");
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.set_request_id("rid");
  return request;
}

TEST(GrpcEdge, GenerateStreamsOnBothPorts) {
  GrpcEdge edge;
  for (size_t port = 0; port < 2; ++port) {
    auto stub = Connect(edge, port);
    const Answer answer = Generate(*stub, Prompted(5));
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "tok0 tok1 tok2 tok3 tok4");
    EXPECT_EQ(answer.ids, (std::vector<int32_t>{100, 101, 102, 103, 104}));
    EXPECT_EQ(answer.started.request_id(), "rid");
    EXPECT_EQ(answer.started.model_id(), "id-of-demo");
    EXPECT_EQ(answer.started.prompt_token_ids_size(), 3);
    ASSERT_EQ(answer.done.size(), 1u);
    EXPECT_EQ(answer.done[0].finish_reason(), "length");
    EXPECT_EQ(answer.usage.completion_tokens(), 5u);
  }
}

TEST(GrpcEdge, ChatModelsAndTokenize) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  v1::ChatRequest chat;
  auto* message = chat.add_messages();
  message->set_role("user");
  message->set_content("hi");
  grpc::ClientContext chat_context;
  auto reader = stub->Chat(&chat_context, chat);
  EXPECT_EQ(ReadAll(*reader).text, "tok0 tok1 tok2");
  {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    ASSERT_TRUE(stub->ListModels(&context, {}, &models).ok());
    ASSERT_EQ(models.models_size(), 1);
    EXPECT_EQ(models.models(0).name(), "demo");
  }
  v1::TokenizeRequest tokenize;
  tokenize.set_text("AB");
  v1::TokenizeResponse tokens;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->Tokenize(&context, tokenize, &tokens).ok());
    EXPECT_EQ(tokens.token_ids_size(), 3);
  }
  tokenize.set_model("other");
  grpc::ClientContext context;
  EXPECT_EQ(stub->Tokenize(&context, tokenize, &tokens).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(GrpcEdge, ErrorsAreStatusesWithTheField) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  v1::GenerateRequest bad = Prompted(0);
  Answer answer = Generate(*stub, bad);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(answer.status.error_message().find("max_tokens"), std::string::npos);
  v1::GenerateRequest unknown = Prompted(1);
  unknown.set_model("other");
  answer = Generate(*stub, unknown);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kRefuse; });
  answer = Generate(*stub, Prompted(1));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(answer.messages, 0);
}

TEST(GrpcEdge, RefusalsSayWhenToComeBack) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kRefuse;
    edge.pipeline.refusal = {ApiCode::kUnavailable, "the queue is full", "", 2500};
  });
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, Prompted(1));
  const Answer answer = ReadAll(*reader);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto seconds = trailing.find("retry-after");
  ASSERT_NE(seconds, trailing.end());
  EXPECT_EQ(std::string(seconds->second.data(), seconds->second.size()), "3");
}

TEST(GrpcEdge, StreamsThatBreakEndInAStatus) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kBreak; });
  Answer answer = Generate(*stub, Prompted(5));
  EXPECT_EQ(answer.text, "tok0 tok1");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kSilentEnd; });
  answer = Generate(*stub, Prompted(5));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);
}

TEST(GrpcEdge, AClientThatLeavesIsCancelled) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  {
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, Prompted(5));
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
    context.TryCancel();
    EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.cancelled.size() == 1; }));
  // A connection that just ends, too.
  RawClient raw = RawClient::Connect(edge.ports[0]);
  raw.Close();
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
}

TEST(GrpcEdge, TheDeadlineReachesThePipeline) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  auto reader = stub->Generate(&context, Prompted(5));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] {
    const uint64_t timeout = edge.pipeline.seen[0].timeout_ms;
    EXPECT_GT(timeout, 3'000'000u);
    EXPECT_LE(timeout, 3'700'000u);  // gRPC rounds deadlines up on the wire
  });
  context.TryCancel();
  ReadAll(*reader);
}

TEST(GrpcEdge, APassedDeadlineFreesTheRequest) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  auto reader = stub->Generate(&context, Prompted(5));
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.live.empty(); }));
}

TEST(GrpcEdge, SlowReadersHoldTheirWindowBackAndGetEverything) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kFlood; });
  auto stub = Connect(edge);
  const Answer answer = Generate(*stub, Prompted(3000));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.ids.size(), 3000u);
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, edge.pipeline.window); });
}

TEST(GrpcEdge, MessagesAtTheLimitAreServedAndOneByteMoreIsRefusedAndCounted) {
  constexpr size_t kLimit = 1u << 20;
  FrontOptions options;
  options.guard.max_message_bytes = kLimit;
  GrpcLimits limits;
  limits.max_receive_bytes = static_cast<int>(kLimit);
  GrpcEdge edge(options, {}, nullptr, limits);
  auto stub = Connect(edge);
  v1::GenerateRequest big = Prompted(1);
  big.set_text(std::string(kLimit, 'a'));
  big.set_text(std::string(2 * kLimit - big.ByteSizeLong(), 'a'));
  ASSERT_EQ(big.ByteSizeLong(), kLimit);
  EXPECT_TRUE(Generate(*stub, big).status.ok());
  EXPECT_EQ(edge.counters.grpc_messages_too_large.value(), 0u);
  big.mutable_text()->push_back('a');
  for (uint64_t refused = 1; refused <= 2; ++refused) {
    EXPECT_EQ(Generate(*stub, big).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(edge.counters.grpc_messages_too_large.value(), refused);
  }
  EXPECT_TRUE(Generate(*stub, Prompted(1)).status.ok());
  EXPECT_EQ(edge.counters.grpc_messages_too_large.value(), 2u);
}

TEST(GrpcEdge, ManyStreamsAtOnce) {
  GrpcEdge edge;
  auto stub = Connect(edge);
  constexpr int kStreams = 64;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->Generate(contexts.back().get(), Prompted(20)));
  }
  for (auto& reader : readers) EXPECT_EQ(ReadAll(*reader).ids.size(), 20u);
}

TEST(GrpcEdge, OneThreadOfGrpcsDoesForAllCalls) {
  GrpcEdge edge;
  for (int life = 0; life < 2; ++life) {
    const OnePollerGrpc one_poller;
    EXPECT_TRUE(one_poller.holds());
    auto stub = Connect(edge);
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
    for (int i = 0; i < 32; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(stub->Generate(contexts.back().get(), Prompted(20)));
    }
    for (auto& reader : readers) EXPECT_EQ(ReadAll(*reader).ids.size(), 20u);
  }
  auto stub = Connect(edge);
  EXPECT_TRUE(Generate(*stub, Prompted(5)).status.ok()) << "the others are back";
}

TEST(GrpcEdge, NoThreadOfGrpcsIsHeldWhereNoneWouldBeLeft) {
  GrpcEdge edge;
  const OnePollerGrpc one_poller(GrpcCallbackThreads() + 1, 200 * kMicrosPerMilli);
  EXPECT_FALSE(one_poller.holds());
  auto stub = Connect(edge);
  EXPECT_TRUE(Generate(*stub, Prompted(5)).status.ok());
}

// Clients that have not asked for joined events find one in each message.
TEST(GrpcEdge, AnAnswerOfOneTurnIsOneMessageForWhoAsks) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  for (const bool joined : {true, false}) {
    v1::GenerateRequest request = Prompted(1);
    request.set_joined_events(joined);
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, request);
    ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
    edge.OnLoop([&] {
      const FakePipeline::Live live = edge.pipeline.live.begin()->second;
      edge.pipeline.live.clear();
      live.sink->OnStarted(FakePipeline::StartedFor(live.request));
      live.sink->OnDelta(FakePipeline::Token(0, 0));
      live.sink->OnChoiceEnd({0, "length", std::nullopt, {}});
      live.sink->OnFinished({3, 1, 0});
    });
    const Answer answer = ReadAll(*reader);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.messages, joined ? 1 : 4) << "started, delta, done and usage";
    EXPECT_EQ(answer.started.request_id(), "rid");
    EXPECT_EQ(answer.text, "tok0");
    ASSERT_EQ(answer.done.size(), 1u);
    EXPECT_EQ(answer.usage.completion_tokens(), 1u);
  }
}

// One message has outputs of one choice, told once.
TEST(GrpcEdge, MessagesJoinOnlyWhatStaysInOrder) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  v1::GenerateRequest request = Prompted(2);
  request.mutable_sampling()->set_n(2);
  request.set_joined_events(true);
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, request);
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] {
    ResponseSink& sink = *edge.pipeline.live.begin()->second.sink;
    Started started;
    started.model = "demo";
    started.prompt_text = "x";
    sink.OnStarted(started);
    const auto say = [&](uint32_t choice, uint64_t index) {
      Delta delta;
      delta.choice = choice;
      delta.first_index = index;
      delta.ids = {static_cast<TokenId>(10 * choice + index)};
      sink.OnDelta(delta);
    };
    say(0, 0);
    say(0, 1);
    say(1, 0);
    sink.OnChoiceEnd({0, "length", std::nullopt, {}});
    say(1, 1);
    sink.OnChoiceEnd({1, "length", std::nullopt, {}});
    edge.pipeline.live.clear();
    sink.OnFinished({1, 4, 0});
  });
  std::vector<std::string> told;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    std::string& of = told.emplace_back();
    const auto tell = [&](const v1::GenerateResponse& event) {
      if (event.has_started()) of += "started ";
      if (event.has_prompt()) of += "prompt ";
      if (event.has_delta()) {
        of += "delta" + std::to_string(event.delta().choice()) + "x" +
              std::to_string(event.delta().token_ids_size()) + " ";
      }
      if (event.has_done()) of += "done" + std::to_string(event.done().choice()) + " ";
      if (event.has_usage()) of += "usage ";
    };
    tell(response);
    for (const v1::GenerateResponse& event : response.more()) tell(event);
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(told, (std::vector<std::string>{"started prompt delta0x2 ", "delta1x1 done0 ",
                                            "delta1x1 done1 usage "}));
}

// At the smallest window that --window-tokens takes too: the worker waits for each quarter of it.
TEST(GrpcEdge, AStreamOfAnyWindowGoesOn) {
  EXPECT_EQ(TakenStepOf(64), kMostTakenStep);
  EXPECT_EQ(TakenStepOf(1 << 20), kMostTakenStep);
  for (const uint64_t window : {4u, 5u, 15u, 16u, 63u, 64u}) {
    const uint64_t step = TakenStepOf(window);
    EXPECT_TRUE(step >= 1 && step <= std::max<uint64_t>(1, window / 4)) << window;
    GrpcLimits limits;
    limits.taken_step = step;
    GrpcEdge edge({}, {}, nullptr, limits);
    edge.OnLoop([&] {
      edge.pipeline.mode = FakePipeline::Mode::kFlood;
      edge.pipeline.window = window;
    });
    auto stub = Connect(edge);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto reader = stub->Generate(&context, Prompted(200));
    const Answer answer = ReadAll(*reader);
    EXPECT_TRUE(answer.status.ok()) << window << ": " << answer.status.error_message();
    EXPECT_EQ(answer.ids.size(), 200u) << window;
  }
}

TEST(GrpcEdge, ConnectionsWithoutACallAreLeftAndOthersAreNot) {
  GrpcLimits limits;
  limits.idle_timeout = 100 * kMicrosPerMilli;
  GrpcEdge edge({}, {}, nullptr, limits);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto busy = Connect(edge);
  grpc::ClientContext context;
  auto reader = busy->Generate(&context, Prompted(1));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto idle =
      grpc::CreateCustomChannel(edge.Target(), grpc::InsecureChannelCredentials(), own_connection);
  const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(60);
  ASSERT_TRUE(idle->WaitForConnected(limit));
  EXPECT_TRUE(idle->WaitForStateChange(GRPC_CHANNEL_READY, limit));
  EXPECT_TRUE(edge.Eventually([&] { return edge.front->connections() == 1; }));
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.live.size(), 1u) << "open for as long as the other took to be left";
    const FakePipeline::Live live = edge.pipeline.live.begin()->second;
    edge.pipeline.live.clear();
    live.sink->OnStarted(FakePipeline::StartedFor(live.request));
    live.sink->OnDelta(FakePipeline::Token(0, 0));
    live.sink->OnChoiceEnd({0, "length", std::nullopt, {}});
    live.sink->OnFinished({3, 1, 0});
  });
  EXPECT_TRUE(ReadAll(*reader).status.ok());
}

TEST(GrpcEdge, CallsPastTheStreamLimitWaitAndPastARequestLimitAreRefused) {
  GrpcLimits limits;
  limits.max_concurrent_streams = 2;
  GrpcEdge edge({}, {}, nullptr, limits);
  edge.OnLoop([&] {
    edge.pipeline.mode = FakePipeline::Mode::kManual;
    edge.grpc_services.request_limits.max_choices = 1;
  });
  auto stub = Connect(edge);
  {  // the client has been told the limit once a call has ended
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    ASSERT_TRUE(stub->ListModels(&context, {}, &response).ok());
  }
  grpc::ClientContext contexts[3];
  std::vector<std::thread> callers;  // the call that waits holds its thread
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      auto reader = stub->Generate(&contexts[i], Prompted(1));
      (void)ReadAll(*reader);
    });
    if (i == 2) break;
    const size_t begun = static_cast<size_t>(i) + 1;
    EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.seen.size() == begun; }));
  }
  edge.OnLoop([&] { EXPECT_EQ(edge.pipeline.live.size(), 2u); });
  contexts[0].TryCancel();
  EXPECT_TRUE(edge.Eventually([&] { return edge.pipeline.seen.size() == 3; }));
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& caller : callers) caller.join();

  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kEcho; });
  v1::GenerateRequest request = Prompted(1);
  request.mutable_sampling()->set_n(1);
  EXPECT_TRUE(Generate(*stub, request).status.ok());
  request.mutable_sampling()->set_n(2);
  EXPECT_EQ(Generate(*stub, request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// While calls under way go on to their end, a client opens no more of them on its connection.
TEST(GrpcEdge, AShutdownTellsClientsToGoElsewhereAndLetsCallsEnd) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto channel = grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials());
  auto stub = v1::Inference::NewStub(channel);
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, Prompted(1));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] { edge.front->StartDraining(); });
  std::thread leaving([&] { edge.server->Shutdown(60 * kMicrosPerSecond); });
  EXPECT_TRUE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::seconds(60)))
      << "the connection is left";
  edge.OnLoop([&] {
    edge.pipeline.EndAll({ApiCode::kUnavailable, "this router is shutting down", "", 1000});
  });
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  leaving.join();
}

// What would never end by itself, such as a health check that is watched, is ended.
TEST(GrpcEdge, CallsThatOutliveAShutdownAreCancelled) {
  GrpcEdge edge;
  auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto watched = health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watched->Read(&response));
  std::thread leaving([&] { edge.server->Shutdown(3600 * kMicrosPerSecond); });
  edge.server->CancelCalls();
  while (watched->Read(&response)) continue;
  EXPECT_FALSE(watched->Finish().ok());
  leaving.join();
}

TEST(GrpcEdge, HealthFollowsThePipelineAndTheDrain) {
  GrpcEdge edge;
  auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials()));
  using Response = grpc::health::v1::HealthCheckResponse;
  auto becomes = [&](const std::string& service, Response::ServingStatus wanted) {
    for (int i = 0; i < 10'000; ++i) {
      grpc::ClientContext context;
      grpc::health::v1::HealthCheckRequest request;
      request.set_service(service);
      Response response;
      if (!stub->Check(&context, request, &response).ok()) return false;
      if (response.status() == wanted) return true;
    }
    return false;
  };
  EXPECT_TRUE(becomes("", Response::SERVING));
  EXPECT_TRUE(becomes("quire.v1.Inference", Response::SERVING));
  EXPECT_TRUE(becomes("inference.GRPCInferenceService", Response::SERVING));
  edge.OnLoop([&] { edge.pipeline.healthy = false; });
  EXPECT_TRUE(becomes("", Response::NOT_SERVING));
  edge.OnLoop([&] { edge.pipeline.healthy = true; });
  EXPECT_TRUE(becomes("", Response::SERVING));
  edge.OnLoop([&] { edge.server->StartDraining(); });
  EXPECT_TRUE(becomes("quire.v1.Inference", Response::NOT_SERVING));
}

}  // namespace
}  // namespace quire
