// How connections and calls of gRPC are limited, left alone, drained and shut down.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "router/front/seats.h"
#include "tests/router/support/grpc_client.h"

namespace quire {
namespace {

// At the smallest window that --window-tokens takes too: the worker waits for each quarter of it.
TEST(GrpcEdge, AStreamOfAnyWindowGoesOn) {
  EXPECT_EQ(TakenStepOf(64), kMostTakenStep);
  EXPECT_EQ(TakenStepOf(1 << 20), kMostTakenStep);
  for (const uint64_t window : {4u, 5u, 15u, 16u, 63u, 64u}) {
    const uint64_t step = TakenStepOf(window);
    EXPECT_TRUE(step >= 1 && step <= std::max<uint64_t>(1, window / 4)) << window;
    GrpcEdgeLimits limits;
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
    const GrpcAnswer answer = ReadAll(*reader);
    EXPECT_TRUE(answer.status.ok()) << window << ": " << answer.status.error_message();
    EXPECT_EQ(answer.ids.size(), 200u) << window;
  }
}

TEST(GrpcEdge, ConnectionsWithoutACallAreLeftAndOthersAreNot) {
  GrpcEdgeLimits limits;
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
  EXPECT_EQ(edge.counters.http2_idle_closed.value(), 1u);
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
  GrpcEdgeLimits limits;
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

// A client that breaks the protocol, and goes on sending.
constexpr std::string_view kPrefaceAndSettings(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);
constexpr std::string_view kDataOnNoStream("\0\0\0\0\0\0\0\0\0", 9);

TEST(GrpcEdge, WhyAConnectionEndedReachesAClientThatIsStillSending) {
  GrpcEdge edge;
  RawClient client = RawClient::Connect(edge.ports[1]);
  std::string sent(kPrefaceAndSettings);
  sent += kDataOnNoStream;
  sent.append(1u << 20, 'x');
  ASSERT_TRUE(client.Send(sent));
  std::string seen;
  char buffer[4096];
  ssize_t bytes = 0;
  while ((bytes = ::recv(client.fd(), buffer, sizeof(buffer), 0)) > 0) {
    seen.append(buffer, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(bytes, 0) << "an end, not a reset";
  EXPECT_NE(seen.find(std::string("\x07\0\0\0\0\0", 6)), std::string::npos) << "GOAWAY";
}

TEST(GrpcEdge, WhatComesAfterTheEndIsReadUpToItsLimit) {
  GrpcEdgeLimits limits;
  limits.max_linger_bytes = 10'000;
  limits.linger_timeout = 600 * kMicrosPerSecond;
  GrpcEdge edge({}, {}, nullptr, limits);
  const auto connections = [&] {
    size_t open = 0;
    edge.OnLoop([&] { open = edge.front->connections(); });
    return open;
  };
  RawClient client = RawClient::Connect(edge.ports[1]);
  ASSERT_TRUE(client.Send(std::string(kPrefaceAndSettings) + std::string(kDataOnNoStream)));
  client.ReadToEnd();
  EXPECT_TRUE(client.Send(std::string(limits.max_linger_bytes, 'x')));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(edge.counters.http_lingers_cut.value(), 0u);
  EXPECT_TRUE(client.Send("x"));
  EXPECT_TRUE(edge.Eventually([&] { return edge.front->connections() == 0; }));
  EXPECT_EQ(edge.counters.http_lingers_cut.value(), 1u);
}

TEST(GrpcEdge, AClientThatStaysAfterTheEndIsLeftInTime) {
  GrpcEdgeLimits limits;
  limits.linger_timeout = 50 * kMicrosPerMilli;
  GrpcEdge edge({}, {}, nullptr, limits);
  RawClient silent = RawClient::Connect(edge.ports[1]);
  ASSERT_TRUE(silent.Send(std::string(kPrefaceAndSettings) + std::string(kDataOnNoStream)));
  silent.ReadToEnd();
  EXPECT_TRUE(edge.Eventually([&] { return edge.front->connections() == 0; }));
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
  bool left = false;
  edge.OnLoop([&] {
    edge.front->StartDraining();
    edge.server->Shutdown(60 * kMicrosPerSecond, [&] { left = true; });
  });
  EXPECT_TRUE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::seconds(60)))
      << "the connection is left";
  edge.OnLoop([&] {
    edge.pipeline.EndAll({ApiCode::kUnavailable, "this router is shutting down", "", 1000});
  });
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(edge.Eventually([&] { return left; }));
  EXPECT_EQ(edge.counters.grpc_cancelled.value(), 0u);
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
  bool left = false;
  edge.OnLoop([&] {
    edge.server->Shutdown(3600 * kMicrosPerSecond, [&] { left = true; });
    edge.server->CancelCalls();
  });
  while (watched->Read(&response)) continue;
  EXPECT_EQ(watched->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(edge.Eventually([&] { return left; }));
}

TEST(GrpcEdge, TheGraceOfAShutdownEnds) {
  GrpcEdge edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto stub = Connect(edge);
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, Prompted(1));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  bool left = false;
  edge.OnLoop([&] { edge.server->Shutdown(1000, [&] { left = true; }); });
  EXPECT_TRUE(edge.Eventually([&] { return left && edge.pipeline.cancelled.size() == 1; }));
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

// As kubelet's gRPC probe does: one Check on a connection of its own. What waits, or lists, would
// keep a place that the next probe needs.
TEST(GrpcEdge, WithEveryPlaceTakenACheckIsAnsweredAndAWatchIsToldWhy) {
  FrontOptions options;
  options.max_connections = 1;
  GrpcEdge edge(options);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  auto busy = Connect(edge);
  grpc::ClientContext running;
  auto reader = busy->Generate(&running, Prompted(1));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  const auto ask = [&](const auto& call) {
    grpc::ChannelArguments own_connection;
    own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(
        edge.Target(), grpc::InsecureChannelCredentials(), own_connection);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return call(*grpc::health::v1::Health::NewStub(channel), context);
  };
  // More of them, one after the other, than there are places for probes.
  bool serving = false;
  for (size_t i = 0; i <= kProbePlaces || (!serving && i < 10'000); ++i) {
    grpc::health::v1::HealthCheckResponse answer;
    const grpc::Status checked = ask([&](auto& health, auto& context) {
      return health.Check(&context, grpc::health::v1::HealthCheckRequest(), &answer);
    });
    ASSERT_TRUE(checked.ok()) << checked.error_message();
    serving = answer.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }
  EXPECT_TRUE(serving);
  const grpc::Status watched = ask([&](auto& health, auto& context) {
    const auto watch = health.Watch(&context, grpc::health::v1::HealthCheckRequest());
    grpc::health::v1::HealthCheckResponse answer;
    while (watch->Read(&answer)) {
    }
    return watch->Finish();
  });
  const grpc::Status listed = ask([&](auto& health, auto& context) {
    grpc::health::v1::HealthListResponse answer;
    return health.List(&context, grpc::health::v1::HealthListRequest(), &answer);
  });
  for (const grpc::Status& refused : {watched, listed}) {
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(refused.error_message(),
              "too many connections are open, so this one may call "
              "/grpc.health.v1.Health/Check alone");
  }
  running.TryCancel();
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
