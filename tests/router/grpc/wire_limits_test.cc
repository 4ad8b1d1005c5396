// What one connection, and all of them together, may make the router hold; deadlines, pings and the
// ends of connections.
#include <gtest/gtest.h>

#include "common/grpc/held_memory.h"
#include "inference/open_inference.pb.h"
#include "tests/router/support/wire_client.h"

namespace quire::wire {
namespace {

constexpr uint32_t kNotice = (1u << 31) - 1;

TEST(GrpcWire, StreamsAtTheLimitPassAndOneMoreIsRefusedAndCounted) {
  GrpcEdgeLimits limits;
  limits.max_concurrent_streams = 3;
  WireClient client(limits);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  for (const uint32_t stream : {1u, 3u, 5u}) client.Say(Call(stream));
  EXPECT_EQ(client.counters.http2_streams_over_limit.value(), 0u);
  client.Say(Call(7));
  EXPECT_EQ(client.counters.http2_streams_over_limit.value(), 1u);
  EXPECT_EQ(client.answers[7].reset, kRefusedStream);
  EXPECT_EQ(client.pipeline.live.size(), 3u) << "the others go on";
  client.Say(Frame(kReset, 0, 1, Number(8, 4)) + Call(9));
  EXPECT_EQ(client.pipeline.seen.size(), 4u);
  EXPECT_EQ(client.counters.http2_streams_over_limit.value(), 1u);
}

TEST(GrpcWire, HeadersAtTheLimitAreServedAndMoreAreRefusedAndCounted) {
  GrpcEdgeLimits limits;
  limits.max_metadata_bytes = 4096;
  WireClient client(limits);
  client.Hello();
  HeaderPairs fields = Post(kGenerate, {{"x-large", ""}});
  size_t size = 0;
  for (const auto& [name, value] : fields) size += name.size() + value.size() + 32;
  fields.back().second = std::string(limits.max_metadata_bytes - size, 'v');
  const std::string body = Message(GenerateBytes());
  client.Say(Headers(1, fields) + Data(1, body, kEndStream));
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_EQ(client.counters.http_headers_too_large.value(), 0u);
  fields.back().second += 'v';
  client.Say(Headers(3, fields) + Data(3, body, kEndStream));
  EXPECT_EQ(client.answers[3].status(), "8");
  EXPECT_NE(client.answers[3].trailer("grpc-message").find("--max-header-bytes"),
            std::string::npos);
  EXPECT_EQ(client.counters.http_headers_too_large.value(), 1u);
  client.Say(Call(5));
  EXPECT_EQ(client.answers[5].status(), "0") << "the connection goes on";
}

TEST(GrpcWire, AMessageThatIsTooLargeIsRefusedByItsPrefix) {
  GrpcEdgeLimits limits;
  limits.max_receive_bytes = 1000;
  WireClient client(limits);
  client.Hello();
  client.Say(Headers(1, Post(kGenerate)) + Data(1, Message(std::string(1001, 'm')).substr(0, 5)));
  EXPECT_EQ(client.answers[1].status(), "8");
  EXPECT_EQ(client.answers[1].trailer("grpc-message"),
            "Received message larger than max (1001 vs. 1000)");
  EXPECT_EQ(client.counters.grpc_messages_too_large.value(), 1u);
  EXPECT_EQ(client.answers[1].reset, kNoError) << "the rest is not waited for";
}

TEST(GrpcWire, MessagesThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused) {
  constexpr size_t kTotal = 100'000;
  WireClient client({}, kTotal);
  client.Hello();
  const std::string message = Message(GenerateBytes(3, std::string(60'000, 'a')));
  const auto part = [&](size_t bytes) { return message.substr(0, 5 + bytes); };
  client.Say(Headers(1, Post(kGenerate)) + Data(1, part(50'000)));
  client.Say(Headers(3, Post(kGenerate)) + Data(3, part(50'000)));
  EXPECT_EQ(client.services.bodies->bytes(), kTotal);
  EXPECT_EQ(client.counters.bodies_refused.value(), 0u);
  client.Say(Data(3, "a"));
  EXPECT_EQ(client.counters.bodies_refused.value(), 1u);
  EXPECT_EQ(client.answers[3].status(), "14");
  EXPECT_EQ(client.answers[3].trailer("retry-after"), "1");
  client.Say(Data(1, std::string_view(message).substr(50'005), kEndStream));
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_EQ(client.services.bodies->bytes(), 0u);
  client.Say(Call(5, GenerateBytes(3, std::string(60'000, 'a'))));
  EXPECT_EQ(client.answers[5].status(), "0") << "what comes whole waits nowhere";
}

// Messages that wait × their calls, in the one account of their connection.
TEST(GrpcWire, OneConnectionsMessagesAtItsLimitWaitAndOneByteMoreIsRefused) {
  constexpr size_t kPart = 30'000;
  const size_t call = kCallBytes + kGenerate.size() +
                      HeldBytes({{"content-type", "application/grpc"}, {"te", "trailers"}});
  const std::string part = Message(std::string(40'000, 'a')).substr(0, 5 + kPart);
  for (const size_t less : {0u, 1u}) {
    GrpcEdgeLimits limits;
    limits.max_connection_memory_bytes = kConnectionBytes + 3 * (call + kPart) - less;
    WireClient client(limits);
    client.Hello();
    for (const uint32_t stream : {1u, 3u, 5u}) {
      client.Say(Headers(stream, Post(kGenerate)) + Data(stream, part));
    }
    EXPECT_EQ(client.answers[5].status(), less == 0 ? "" : "8");
    EXPECT_EQ(client.connection->calls(), 3 - less);
    client.Say(Data(3, "a"));
    EXPECT_EQ(client.answers[3].status(), less == 0 ? "8" : "") << "room that another gave back";
    EXPECT_EQ(client.services.memory->refused(MemoryScope::kConnection), 1u);
    EXPECT_EQ(client.counters.bodies_refused.value(), 0u);
    EXPECT_EQ(client.services.memory->bytes(), client.connection->memory()->bytes());
  }
}

// Connections × messages that wait × calls of one tenant: they count once in the process.
TEST(GrpcWire, OneTenantsMessagesCountOverItsConnectionsAndItsLimitHolds) {
  constexpr size_t kPart = 30'000;
  const std::string part = Message(std::string(40'000, 'a')).substr(0, 5 + kPart);
  WireClient client;
  const auto tenant =
      std::make_shared<MemoryAccount>(3 * kPart, client.services.memory, MemoryScope::kTenant);
  client.pipeline.memory = tenant;
  client.Hello();
  for (const uint32_t stream : {1u, 3u, 5u}) {
    client.Say(Headers(stream, Post(kGenerate)) + Data(stream, part));
  }
  EXPECT_EQ(tenant->bytes(), 3 * kPart);
  EXPECT_EQ(client.services.memory->bytes(), client.connection->memory()->bytes()) << "once";
  client.Say(Data(5, "a"));
  EXPECT_EQ(client.answers[5].status(), "8");
  EXPECT_NE(client.answers[5].trailer("grpc-message").find("--max-tenant-memory-bytes"),
            std::string::npos);
  EXPECT_EQ(client.services.memory->refused(MemoryScope::kTenant), 1u);
  EXPECT_EQ(tenant->bytes(), 2 * kPart);
  client.connection->Close();
  EXPECT_EQ(tenant->bytes(), 0u);
}

TEST(GrpcWire, LargeMessagesAreReadBesideTheLoopAndCountMeanwhile) {
  WireClient client;
  client.Hello();
  const std::string large = GenerateBytes(3, std::string(100'000, 'a'));
  client.Say(Call(1, large));
  EXPECT_EQ(client.services.bodies->bytes(), large.size());
  EXPECT_TRUE(client.pipeline.seen.empty());
  client.Say(Call(3));
  EXPECT_EQ(client.pipeline.seen.size(), 1u) << "others do not wait for it";
  client.Wait(2000);
  EXPECT_EQ(client.pipeline.seen.size(), 2u);
  EXPECT_EQ(client.answers[1].status(), "0");
}

TEST(GrpcWire, ALargeMessageWhoseCallHasEndedCountsUntilItIsLetGoAndIsNotRead) {
  WireClient client;
  LimitCounters read(client.metrics);  // counts what is read: each message is past a limit
  client.services.request_limits.max_prompt_bytes = 1;
  client.services.request_limits.counters = &read;
  client.Hello();
  const std::string large = GenerateBytes(3, std::string(100'000, 'a'));
  client.Say(Call(1, large));
  client.Wait(2000);
  EXPECT_EQ(read.prompt_bytes.value(), 1u);
  client.Say(Call(3, large));
  client.Say(Frame(kReset, 0, 3, Number(8, 4)));
  EXPECT_EQ(client.connection->calls(), 0u);
  EXPECT_EQ(client.services.bodies->bytes(), large.size());
  client.Wait(2000);
  EXPECT_EQ(client.services.bodies->bytes(), 0u);
  EXPECT_EQ(read.prompt_bytes.value(), 1u) << "its client had left by then";
}

constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const std::string kNoWindow = Setting(4, 0);  // SETTINGS_INITIAL_WINDOW_SIZE

// Five bytes of a stream's window each; while an answer waits, none of them is read.
TEST(GrpcWire, MessagesWithoutBytesCountForWhatTheyTake) {
  GrpcEdgeLimits limits;
  limits.max_receive_bytes = 1000;
  WireClient client(limits, 10'000);
  client.Hello(kNoWindow);
  std::string many;
  for (int i = 0; i < 100; ++i) many += Message("");
  client.Say(Headers(1, Post(kReflection)) + Data(1, Message("") + many));
  EXPECT_GE(client.services.bodies->bytes(), 100 * sizeof(std::string));
  EXPECT_EQ(client.counters.bodies_refused.value(), 0u);
  client.Say(Data(1, many + many + many));
  EXPECT_EQ(client.counters.bodies_refused.value(), 1u);
  EXPECT_EQ(client.services.bodies->bytes(), 0u);
}

std::string TokenizeCall(uint32_t stream) {
  v1::TokenizeRequest request;
  request.set_text(std::string(100, 'x'));
  return Headers(stream, Post("/quire.v1.Inference/Tokenize")) +
         Data(stream, Message(request.SerializeAsString()), kEndStream);
}

TEST(GrpcWire, AnAnswerThatIsNotTakenIsGivenUpOnceItHasEnded) {
  GrpcEdgeLimits limits;
  limits.write_timeout = kMicrosPerSecond;
  WireClient client(limits);
  client.Hello(kNoWindow);
  client.Say(TokenizeCall(1));
  client.Say(TokenizeCall(3));
  for (int i = 0; i < 5; ++i) {
    client.Wait(kMicrosPerSecond - 2000);
    EXPECT_EQ(client.connection->calls(), i == 0 ? 2u : 1u);
    client.Say(Frame(kWindowUpdate, 0, 3, Number(1, 4)));
  }
  EXPECT_EQ(client.answers[1].reset, 8) << "CANCEL";
  EXPECT_EQ(client.counters.http_write_timeouts.value(), 1u);
  client.Say(Frame(kWindowUpdate, 0, 3, Number(1 << 20, 4)));
  EXPECT_EQ(client.answers[3].status(), "0") << "its client has taken of it each time";
  client.Say(TokenizeCall(5) + Frame(kWindowUpdate, 0, 5, Number(1 << 20, 4)));
  client.Wait(2 * kMicrosPerSecond);
  EXPECT_EQ(client.answers[5].status(), "0");
  EXPECT_EQ(client.counters.http_write_timeouts.value(), 1u);
}

TEST(GrpcWire, AnAnswerThatNoMessageMayHoldIsNoneWithoutIt) {
  GrpcEdgeLimits limits;
  limits.max_send_bytes = 10;
  WireClient client(limits);
  client.Hello();
  client.Say(TokenizeCall(1));
  EXPECT_EQ(client.answers[1].status(), "8");
  EXPECT_EQ(client.answers[1].trailer("grpc-message").find("Sent message larger than max ("), 0u);
  EXPECT_TRUE(client.answers[1].messages.empty());
}

std::string InferBytes(const std::string& id, size_t text_bytes) {
  inference::ModelInferRequest request;
  request.set_model_name("demo");
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents(std::string(text_bytes, 'a'));
  return request.SerializeAsString();
}

constexpr char kStreamInfer[] = "/inference.GRPCInferenceService/ModelStreamInfer";

TEST(GrpcWire, MessagesOfAStreamKeepTheirOrderWhereverTheyAreRead) {
  WireClient client;
  client.Hello();
  client.Say(Headers(1, Post(kStreamInfer)) + Data(1, Message(InferBytes("a", 100'000))) +
             Data(1, Message(InferBytes("b", 1)) + Message(InferBytes("c", 100'000)), kEndStream));
  EXPECT_TRUE(client.pipeline.seen.empty());
  EXPECT_GT(client.services.bodies->bytes(), 200'000u);
  client.Wait(5000);
  ASSERT_EQ(client.pipeline.seen.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client.pipeline.seen[i].request_id, std::string(1, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(client.answers[1].status(), "0") << "the half-close came last";
}

// The stream's window stays with what waits, the connection's does not.
TEST(GrpcWire, AStreamThatIsNotReadFromIsHeldBackByItsWindow) {
  WireClient client;
  client.Hello();
  std::string burst = Headers(1, Post(kStreamInfer)) + Data(1, Message(InferBytes("a", 100'000)));
  for (int i = 0; i < 10; ++i) burst += Data(1, Message(InferBytes("b", 30'000)));
  client.Say(burst);
  EXPECT_EQ(client.stream_window, 0u);
  client.Wait(5000);
  EXPECT_GT(client.stream_window, 300'000u);
}

TEST(GrpcWire, WhatTheSystemHasNotTakenIsNotTheClients) {
  GrpcEdgeLimits limits;
  limits.taken_step = 1;
  WireClient client(limits);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kFlood;
  client.connection->Receive(Call(1, GenerateBytes(100)));
  const auto run = [&] { client.world.RunUntil(client.world.clock().Now()); };
  run();
  const FakePipeline::Live& live = client.pipeline.live.begin()->second;
  EXPECT_EQ(live.sent, client.pipeline.window);
  std::string out;
  client.connection->Send(out, 64u << 10);
  run();
  EXPECT_EQ(live.taken, 0u);
  EXPECT_EQ(live.sent, client.pipeline.window);
  client.connection->Written(out.size() - 1);
  run();
  EXPECT_LT(live.taken, client.pipeline.window) << "a byte of the last message waits";
  client.connection->Written(1);
  run();
  EXPECT_EQ(live.taken, client.pipeline.window);
}

TEST(GrpcWire, AnswersThatNoMessageMayHoldEndTheCall) {
  GrpcEdgeLimits limits;
  limits.max_send_bytes = 100;
  WireClient client(limits);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  Delta delta = FakePipeline::Token(0, 0);
  delta.text = std::string(101, 't');
  live.sink->OnDelta(delta);
  client.Hear();
  EXPECT_EQ(client.answers[1].status(), "8");
  EXPECT_EQ(client.pipeline.cancelled.size(), 1u);
}

TEST(GrpcWire, ADeadlineEndsTheCallAndWhatIsNoneDoesNot) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Headers(1, Post(kGenerate, {{"grpc-timeout", "100m"}})) +
             Data(1, Message(GenerateBytes()), kEndStream));
  client.Say(Headers(3, Post(kGenerate, {{"grpc-timeout", "99999999H"}})) +
             Data(3, Message(GenerateBytes()), kEndStream));
  client.Say(Headers(5, Post(kGenerate, {{"grpc-timeout", "soon"}})) +
             Data(5, Message(GenerateBytes()), kEndStream));
  EXPECT_EQ(client.pipeline.seen[0].timeout_ms, 100u);
  EXPECT_EQ(client.pipeline.seen[1].timeout_ms, 0u);
  EXPECT_EQ(client.answers[5].status(), "3");
  EXPECT_NE(client.answers[5].trailer("grpc-message").find("grpc-timeout: \"soon\" is no time"),
            std::string::npos);
  client.Wait(99 * kMicrosPerMilli);
  EXPECT_EQ(client.pipeline.live.size(), 2u);
  client.Wait(2 * kMicrosPerMilli);
  EXPECT_EQ(client.pipeline.live.size(), 1u);
  EXPECT_EQ(client.answers[1].status(), "4");
  EXPECT_EQ(client.counters.grpc_cancelled.value(), 1u);
}

TEST(GrpcWire, AClientThatSaysNothingIsPingedAndGivenUp) {
  GrpcEdgeLimits limits;
  limits.keep_alive = kMicrosPerSecond;
  limits.ping_timeout = 2 * kMicrosPerSecond;
  WireClient client(limits);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  for (size_t i = 1; i <= 5; ++i) {
    client.Wait(kMicrosPerSecond + 2000);
    ASSERT_EQ(client.pings.size(), i);
    client.Say(Frame(kPing, kAck, 0, client.pings.back()));
  }
  client.Wait(kMicrosPerSecond + 2000);
  client.Wait(2 * kMicrosPerSecond - 4000);
  EXPECT_FALSE(client.gave_up);
  client.Wait(4000);
  EXPECT_TRUE(client.gave_up);
  EXPECT_EQ(client.pipeline.cancelled.size(), 1u);
}

TEST(GrpcWire, AConnectionThatIsLeftServesWhatWasUnderWay) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  client.connection->Leave();
  client.Hear();
  EXPECT_EQ(client.last_streams, std::vector<uint32_t>{kNotice});
  ASSERT_EQ(client.pings.size(), 1u);
  // Begun before the client read the notice.
  client.Say(Call(3) + Frame(kPing, kAck, 0, client.pings[0]));
  EXPECT_EQ(client.last_streams, (std::vector<uint32_t>{kNotice, 3}));
  EXPECT_EQ(client.went_away, kNoError);
  client.Say(Call(5));
  EXPECT_EQ(client.pipeline.live.size(), 2u) << "too late";
  EXPECT_FALSE(client.closed);
  const auto live = std::exchange(client.pipeline.live, {});
  for (const auto& [id, one] : live) one.sink->OnError({ApiCode::kUnavailable, "leaving", "", 0});
  client.Hear();
  EXPECT_EQ(client.answers[1].status(), "14");
  EXPECT_EQ(client.answers[3].status(), "14");
  EXPECT_TRUE(client.closed);
}

TEST(GrpcWire, AClientThatAnswersNoPingIsLeftAllTheSame) {
  GrpcEdgeLimits limits;
  limits.idle_timeout = kMicrosPerSecond;
  limits.notice_timeout = 100 * kMicrosPerMilli;
  WireClient client(limits);
  client.Hello();
  client.Say(Call(1));
  client.Wait(kMicrosPerSecond - 2000);
  EXPECT_TRUE(client.last_streams.empty());
  EXPECT_EQ(client.counters.http2_idle_closed.value(), 0u);
  client.Wait(4000);
  EXPECT_EQ(client.last_streams, std::vector<uint32_t>{kNotice});
  EXPECT_EQ(client.counters.http2_idle_closed.value(), 1u);
  client.Wait(limits.notice_timeout + 2000);
  EXPECT_EQ(client.last_streams, (std::vector<uint32_t>{kNotice, 1}));
  EXPECT_TRUE(client.closed);
}

}  // namespace
}  // namespace quire::wire
