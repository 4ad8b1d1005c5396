// gRPC clients against the whole edge, through the front and its guard.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "quire/v1/inference.grpc.pb.h"
#include "tests/router/support/grpc_client.h"

namespace quire {
namespace {

TEST(GrpcEdge, GenerateStreamsOnBothPorts) {
  GrpcEdge edge;
  for (size_t port = 0; port < 2; ++port) {
    auto stub = Connect(edge, port);
    const GrpcAnswer answer = Generate(*stub, Prompted(5));
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
  GrpcAnswer answer = Generate(*stub, bad);
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
  const GrpcAnswer answer = ReadAll(*reader);
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
  GrpcAnswer answer = Generate(*stub, Prompted(5));
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
  const GrpcAnswer answer = Generate(*stub, Prompted(3000));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.ids.size(), 3000u);
  edge.OnLoop([&] { EXPECT_LE(edge.pipeline.max_ahead, edge.pipeline.window); });
}

TEST(GrpcEdge, MessagesAtTheLimitAreServedAndOneByteMoreIsRefusedAndCounted) {
  constexpr size_t kLimit = 1u << 20;
  GrpcEdgeLimits limits;
  limits.max_receive_bytes = kLimit;
  GrpcEdge edge({}, {}, nullptr, limits);
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
    const GrpcAnswer answer = ReadAll(*reader);
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

}  // namespace
}  // namespace quire
