// What one client's connection may cost in memory: its calls and their metadata, answers that are
// not read, and calls that only wait.
#include <gtest/gtest.h>
#include <malloc.h>

#include "common/grpc/held_memory.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "inference/open_inference.pb.h"
#include "tests/router/support/hostile_wire.h"

namespace quire::wire {
namespace {

size_t OwnBytes(const std::string& path, const GrpcMetadata& metadata) {
  return kCallBytes + path.size() + HeldBytes(metadata);
}

TEST(HeldMemory, AConnectionsMemoryAtItsLimitIsServedAndOneCallMoreIsRefusedAndCounted) {
  const size_t own =
      OwnBytes(kGenerate, {{"content-type", "application/grpc"}, {"te", "trailers"}});
  for (const size_t less : {0u, 1u}) {
    GrpcEdgeLimits limits;
    limits.max_connection_memory_bytes = kConnectionBytes + 3 * own - less;
    WireClient client(limits);
    client.Hello();
    client.pipeline.mode = FakePipeline::Mode::kManual;
    for (const uint32_t stream : {1u, 3u, 5u}) client.Say(Call(stream));
    EXPECT_EQ(client.pipeline.live.size(), 3 - less);
    client.Say(Call(7));
    EXPECT_EQ(client.pipeline.live.size(), 3 - less);
    EXPECT_EQ(client.answers[7].status(), "8");
    EXPECT_EQ(client.answers[7].trailer("grpc-retry-pushback-ms"), "1000");
    EXPECT_EQ(client.services.memory->refused(MemoryScope::kConnection), 1 + less);
  }
}

TEST(HeldMemory, WhatAllClientsHoldAtItsLimitIsServedAndOneCallMoreIsAskedToComeAgain) {
  const size_t own =
      OwnBytes(kGenerate, {{"content-type", "application/grpc"}, {"te", "trailers"}});
  WireClient client({}, 1u << 30, kConnectionBytes + own);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  EXPECT_EQ(client.pipeline.live.size(), 1u);
  client.Say(Call(3));
  EXPECT_EQ(client.answers[3].status(), "14");
  EXPECT_EQ(client.answers[3].trailer("grpc-retry-pushback-ms"), "1000");
  EXPECT_EQ(client.services.memory->refused(MemoryScope::kConnection), 0u);
  EXPECT_EQ(client.services.memory->refused(MemoryScope::kProcess), 1u);
}

// The connection's bytes once a text of that size waits for a client without a window.
size_t HeldByAnAnswer(size_t limit, size_t text_bytes, std::string& status) {
  GrpcEdgeLimits limits;
  limits.max_connection_memory_bytes = limit;
  WireClient client(limits);
  client.Hello(kNoWindow);
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  Delta delta = FakePipeline::Token(0, 0);
  delta.text = std::string(text_bytes, 't');
  live.sink->OnDelta(delta);
  client.Hear();
  const size_t held = client.connection->memory()->bytes();
  client.Say(Frame(kWindowUpdate, 0, 1, Number(1 << 20, 4)));
  status = client.answers[1].status();
  EXPECT_EQ(client.services.memory->refused(MemoryScope::kConnection), status.empty() ? 0u : 1u);
  EXPECT_EQ(client.pipeline.cancelled.size(), status.empty() ? 0u : 1u);
  return held;
}

TEST(HeldMemory, AnAnswerThatWaitsAtTheLimitIsKeptAndOneByteMoreEndsTheCall) {
  std::string status;
  const size_t held = HeldByAnAnswer(1u << 30, 100'000, status);
  EXPECT_GT(held, kConnectionBytes + kCallBytes + 100'000);
  EXPECT_EQ(status, "");
  EXPECT_EQ(HeldByAnAnswer(held, 100'000, status), held);
  EXPECT_EQ(status, "");
  EXPECT_LT(HeldByAnAnswer(held - 1, 100'000, status), kConnectionBytes + 2 * kCallBytes);
  EXPECT_EQ(status, "8");
}

TEST(HeldMemory, AnswersThatWaitInTheirHandlerAreCountedToo) {
  WireClient client;
  client.Hello(kNoWindow);
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1, GenerateBytes(1000)));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  client.Hear();
  const size_t before = client.connection->memory()->bytes();
  for (uint64_t i = 0; i < 10; ++i) {
    Delta delta = FakePipeline::Token(0, i);
    delta.text = std::string(10'000, 't');
    live.sink->OnDelta(delta);
    client.Hear();
    EXPECT_GT(client.connection->memory()->bytes(), before + (i + 1) * 10'000);
  }
  EXPECT_LT(client.connection->memory()->bytes(), before + 300'000);
  for (const uint32_t stream : {0u, 1u}) {
    client.Say(Frame(kWindowUpdate, 0, stream, Number(1 << 20, 4)));
  }
  EXPECT_LT(client.connection->memory()->bytes(), before + 1000) << "they have left";
}

// Streams times metadata: headers by reference cost their sender nothing.
TEST(HeldMemory, CallsThatNeedNoMetadataKeepNoneAndFewOfThemWatch) {
  WireClient client;
  client.Hello();
  client.Say(Planting(1, kWatch, 0));
  for (uint32_t stream = 3; stream < 2 * 256; stream += 2) {
    client.Say(Referring(stream, stream % 4 == 1 ? kWatch : kCheck, 3, 0));
    client.Say(Data(stream, Message("").substr(0, 1)));
  }
  EXPECT_EQ(client.counters.grpc_method_calls_refused.value(), 128u - kMaxWatchesPerConnection);
  EXPECT_LE(client.connection->memory()->bytes(), kConnectionBytes + 256 * (kCallBytes + 64));
  client.Wait(kHealthQuestionTimeout + kMicrosPerSecond);
  EXPECT_EQ(client.connection->calls(), 0u) << "they asked nothing";
}

TEST(HeldMemory, WatchersAtTheLimitAreServedAndOneMoreIsRefusedAndCounted) {
  WireClient client;
  client.Hello();
  const auto watch = [&](uint32_t stream) {
    client.Say(Headers(stream, Post(kWatch)) + Data(stream, Message(""), kEndStream));
  };
  uint32_t stream = 1;
  for (uint32_t i = 0; i < kMaxWatchesPerConnection; ++i, stream += 2) watch(stream);
  EXPECT_EQ(client.connection->calls(), kMaxWatchesPerConnection);
  EXPECT_EQ(client.counters.grpc_method_calls_refused.value(), 0u);
  watch(stream);
  EXPECT_EQ(client.answers[stream].status(), "8");
  EXPECT_EQ(client.counters.grpc_method_calls_refused.value(), 1u);
  client.Say(Frame(kReset, 0, 1, Number(8, 4)));
  watch(stream + 2);
  EXPECT_EQ(client.answers[stream + 2].messages.size(), 1u) << "another one's place";
}

TEST(HeldMemory, ReflectionRepeatsNoLongQuestion) {
  for (const size_t more : {0u, 1u}) {
    grpc::reflection::v1::ServerReflectionRequest request;
    request.set_file_by_filename(std::string(kMaxReflectionQuestionBytes - 3 + more, 'f'));
    ASSERT_EQ(request.ByteSizeLong(), kMaxReflectionQuestionBytes + more);
    WireClient client;
    client.Hello(kNoWindow);
    client.Say(Headers(1, Post(kReflection)) + Data(1, Message(request.SerializeAsString())));
    const size_t held = client.connection->memory()->bytes();
    EXPECT_EQ(client.answers[1].status(), more == 0 ? "" : "8");
    EXPECT_EQ(held > kConnectionBytes + kCallBytes + kMaxReflectionQuestionBytes, more == 0);
    EXPECT_LT(held, kConnectionBytes + kCallBytes + 2 * kMaxReflectionQuestionBytes);
  }
}

// The constants are upper bounds of what malloc gives (which sanitizers do not count).
TEST(HeldMemory, ConnectionsAndCallsTakeNoMoreThanIsCounted) {
  constexpr int kConnections = 20;
  constexpr uint32_t kCalls = 200;
  const auto allocated = [] { return mallinfo2().uordblks; };
  WireClient first;
  first.Hello();
  std::vector<std::unique_ptr<GrpcConnection>> connections;
  struct Nowhere final : GrpcConnection::Transport {
    void WantsToSend() override {}
    void GiveUp() override {}
  } nowhere;
  // The smallest entries fill the table with the most of them, and one is referred to by as many
  // fields as a block may have.
  std::string full = Block(Post(kWatch));
  for (int i = 0; i < 124; ++i) full += std::string("\x40\x01") + "a" + std::string(1, '\0');
  full += std::string(1700, '\xbe');
  const std::string hello =
      kPreface + Frame(kSettings, 0, 0, "") + Frame(kHeaders, kEndHeaders, 1, full);
  const size_t before = allocated();
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<GrpcConnection>(*first.host, first.methods, nowhere));
    connections.back()->Start();
    connections.back()->Receive(hello);
  }
  const size_t of_connection = (allocated() - before) / kConnections;
  RecordProperty("connection_bytes", static_cast<int>(of_connection));
  EXPECT_LE(of_connection, kConnectionBytes);
  for (const auto& connection : connections) connection->Close();
  connections.clear();

  first.pipeline.mode = FakePipeline::Mode::kManual;
  first.Say(Call(1));
  std::string calls;
  const std::string smallest = std::string("\x40\x01") + "a" + std::string(1, '\0');
  for (uint32_t i = 1; i <= kCalls; ++i) {
    calls += Frame(kHeaders, kEndHeaders, 2 * i + 1,
                   Block(Post(kReflection)) + smallest + std::string(100, '\xbe'));
    calls += Data(2 * i + 1, "\0");
  }
  const size_t counted_before = first.services.memory->bytes(), calls_before = allocated();
  first.Say(calls);
  const size_t counted = first.services.memory->bytes() - counted_before;
  const size_t of_call = (allocated() - calls_before) / kCalls;
  RecordProperty("call_bytes", static_cast<int>(of_call));
  EXPECT_GE(counted / kCalls, kCallBytes);
  EXPECT_LE(of_call, kCallBytes);
}

// ---- whole answers

// What of `kTokens` pieces of an answer came before the call ended; a ModelInfer keeps them all
// until the answer is whole.
constexpr size_t kTokens = 20, kText = 10'000;
size_t TokensOfAWholeAnswer(WireClient& client) {
  client.Hello(kWideOpen);
  client.pipeline.mode = FakePipeline::Mode::kManual;
  inference::ModelInferRequest request;
  request.set_model_name("demo");
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents("x");
  client.Say(Headers(1, Post("/inference.GRPCInferenceService/ModelInfer")) +
             Data(1, Message(request.SerializeAsString()), kEndStream));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  size_t tokens = 0;
  for (; tokens < kTokens && client.pipeline.cancelled.empty(); ++tokens) {
    Delta delta = FakePipeline::Token(0, tokens);
    delta.text = std::string(kText, 't');
    live.sink->OnDelta(delta);
    client.Hear();
  }
  return tokens;
}

TEST(HeldMemory, AnAnswerThatGrowsUntilItIsWholeIsCountedMeanwhile) {
  for (const bool fits : {true, false}) {
    GrpcEdgeLimits limits;
    const size_t answer = fits ? 1u << 30 : kTokens * kText / 2;
    limits.max_connection_memory_bytes = kConnectionBytes + 2 * kCallBytes + answer;
    WireClient client(limits);
    EXPECT_EQ(TokensOfAWholeAnswer(client) == kTokens, fits);
    EXPECT_EQ(client.answers[1].status(), fits ? "" : "8");
    EXPECT_EQ(client.services.memory->refused(MemoryScope::kConnection), fits ? 0u : 1u);
  }
}

TEST(HeldMemory, AnAnswerThatGrowsUntilItIsWholeEndsAtItsTenantsLimit) {
  for (const bool fits : {true, false}) {
    WireClient client;
    const size_t limit = fits ? 1u << 30 : kTokens * kText / 2;
    const auto tenant =
        std::make_shared<MemoryAccount>(limit, client.services.memory, MemoryScope::kTenant);
    client.pipeline.memory = tenant;
    const size_t tokens = TokensOfAWholeAnswer(client);
    EXPECT_EQ(tokens == kTokens, fits);
    EXPECT_GT(tokens, 5u) << "the limit is that of several pieces";
    EXPECT_EQ(client.answers[1].status(), fits ? "" : "8");
    EXPECT_EQ(client.services.memory->refused(MemoryScope::kTenant), fits ? 0u : 1u);
    client.connection->Close();
    EXPECT_EQ(tenant->bytes(), 0u);
  }
}

}  // namespace
}  // namespace quire::wire
