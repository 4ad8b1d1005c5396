// What one client's connection may cost in work and in memory: headers by reference, floods of
// small things, answers that are not read, and calls that only wait.
#include <gtest/gtest.h>
#include <malloc.h>

#include <functional>

#include "common/grpc/held_memory.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "inference/open_inference.pb.h"
#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

using wire::Call;
using wire::Data;
using wire::Frame;
using wire::GenerateBytes;
using wire::Headers;
using wire::kEndHeaders;
using wire::kEndStream;
using wire::kGenerate;
using wire::Message;
using wire::Post;
using wire::WireClient;

constexpr int kInternalError = 2, kCalm = 11;
constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kTheReference = '\xbe';  // to the newest entry of the table
const std::string kNoWindow = wire::Setting(4, 0);
const std::string kWideOpen =
    wire::Setting(4, 1 << 30) + Frame(wire::kWindowUpdate, 0, 0, wire::Number(1 << 30, 4));

// A request that puts a value of 4,000 bytes into the table.
std::string Planting(uint32_t stream, const std::string& path, uint8_t flags) {
  const std::string field =
      std::string("\x40\x01") + "a" + wire::Block({{"", std::string(3999, 'v')}}).substr(2);
  return Frame(wire::kHeaders, kEndHeaders | flags, stream, wire::Block(Post(path)) + field);
}

// A request whose headers name that value again and again.
std::string Referring(uint32_t stream, const std::string& path, size_t times, uint8_t flags) {
  return Frame(wire::kHeaders, kEndHeaders | flags, stream,
               wire::Block(Post(path)) + std::string(times, kTheReference));
}

uint64_t Closed(const WireClient& client, const char* limit) {
  return client.counters.http2_guard_closed.at(limit)->value();
}

TEST(HostileClient, ABlockOfReferencesIsDecodedToItsLimitAndNoFurther) {
  WireClient client;
  client.Hello();
  client.Say(Planting(1, kWatch, kEndStream));
  EXPECT_FALSE(client.closed);
  client.Say(Referring(3, kWatch, 60, kEndStream));
  EXPECT_EQ(client.answers[3].status(), "8") << "too large, and told so";
  EXPECT_FALSE(client.closed);
  client.Say(Referring(5, kWatch, 16'000, kEndStream));
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(client.went_away, kCalm);
  EXPECT_EQ(Closed(client, "decoded_header_block"), 1u);
}

TEST(HostileClient, ManyBlocksOfReferencesAreHeldToARate) {
  GrpcEdgeLimits limits;
  limits.guard.decoded_header_bytes = {1 << 20, 4 << 20};
  WireClient client(limits);
  client.Hello();
  client.Say(Planting(1, kWatch, kEndStream));
  uint32_t stream = 3;
  for (; !client.closed && stream < 1000; stream += 2) {
    client.Say(Referring(stream, kWatch, 60, kEndStream));  // 240 KB each
  }
  EXPECT_EQ(stream, 39u) << "the 18th of them is past 4 MiB";
  EXPECT_EQ(client.went_away, kCalm);
  EXPECT_EQ(Closed(client, "decoded_header_bytes"), 1u);
}

TEST(HostileClient, BlocksOfStreamsThatAreGoneCountAsWhatTheyMayStandFor) {
  WireClient client;
  client.Hello();
  client.Say(Planting(1, kCheck, 0) + Frame(wire::kReset, 0, 1, wire::Number(8, 4)));
  client.Say(Referring(1, kCheck, 4000, 0));
  client.Say(Referring(1, kCheck, 4000, 0));
  EXPECT_FALSE(client.closed);
  client.Say(Referring(1, kCheck, 16'000, 0));
  client.Say(Frame(wire::kPing, 0, 0, "12345678"));
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(Closed(client, "decoded_header_block"), 1u);
}

// Another connection's work is posted in the middle of what one has sent at once.
TEST(HostileClient, AFloodOfFramesIsTakenInTurnsWithOthers) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  std::string flood = Headers(1, Post(kReflection));
  for (int i = 0; i < 3900; ++i) flood += Frame(wire::kData, 0, 1, "");
  client.connection->Receive(flood + Headers(3, Post(kGenerate)));
  EXPECT_TRUE(client.connection->behind());
  EXPECT_EQ(client.connection->calls(), 1u);
  bool others = false;
  client.world.executor().Post([&] {
    others = true;
    EXPECT_EQ(client.connection->calls(), 1u);
  });
  client.connection->Receive(Data(3, Message(GenerateBytes()), kEndStream));  // it comes behind
  client.Hear();
  EXPECT_TRUE(others);
  EXPECT_FALSE(client.connection->behind());
  EXPECT_EQ(client.pipeline.seen.size(), 1u);
  EXPECT_FALSE(client.closed);
}

TEST(HostileClient, AFloodOfMessagesIsReadInTurnsWithOthers) {
  constexpr int kMessages = 3000;
  GrpcEdgeLimits limits;
  limits.turn_work_bytes = 100 * kMessageWork;
  limits.max_requests_per_call = 1;
  WireClient client(limits);
  client.Hello(kWideOpen);
  std::string messages;
  for (int i = 0; i < kMessages; ++i) messages += Message("");
  const std::string flood =
      Headers(1, Post("/inference.GRPCInferenceService/ModelStreamInfer")) + Data(1, messages);
  client.connection->Receive(flood);
  const auto read = [&] { return client.counters.grpc_stream_requests.value(); };
  EXPECT_LE(read(), 100u);
  uint64_t meanwhile = 0;
  client.world.executor().Post([&] { meanwhile = read(); });
  client.Hear();
  EXPECT_LE(meanwhile, 200u);
  client.Wait(kMicrosPerSecond);
  EXPECT_EQ(read(), static_cast<uint64_t>(kMessages));
}

size_t OwnBytes(const std::string& path, const GrpcMetadata& metadata) {
  return kCallBytes + path.size() + HeldBytes(metadata);
}

TEST(HostileClient, AConnectionsMemoryAtItsLimitIsServedAndOneCallMoreIsRefusedAndCounted) {
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
    EXPECT_EQ(client.counters.connection_memory_refused.value(), 1 + less);
  }
}

TEST(HostileClient, WhatAllClientsHoldAtItsLimitIsServedAndOneCallMoreIsAskedToComeAgain) {
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
  EXPECT_EQ(client.counters.connection_memory_refused.value(), 0u);
  EXPECT_EQ(client.services.memory->refused(), 1u);
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
  client.Say(Frame(wire::kWindowUpdate, 0, 1, wire::Number(1 << 20, 4)));
  status = client.answers[1].status();
  EXPECT_EQ(client.counters.connection_memory_refused.value(), status.empty() ? 0u : 1u);
  EXPECT_EQ(client.pipeline.cancelled.size(), status.empty() ? 0u : 1u);
  return held;
}

TEST(HostileClient, AnAnswerThatWaitsAtTheLimitIsKeptAndOneByteMoreEndsTheCall) {
  std::string status;
  const size_t held = HeldByAnAnswer(1u << 30, 100'000, status);
  EXPECT_GT(held, kConnectionBytes + kCallBytes + 100'000);
  EXPECT_EQ(status, "");
  EXPECT_EQ(HeldByAnAnswer(held, 100'000, status), held);
  EXPECT_EQ(status, "");
  EXPECT_LT(HeldByAnAnswer(held - 1, 100'000, status), kConnectionBytes + 2 * kCallBytes);
  EXPECT_EQ(status, "8");
}

TEST(HostileClient, AnswersThatWaitInTheirHandlerAreCountedToo) {
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
    client.Say(Frame(wire::kWindowUpdate, 0, stream, wire::Number(1 << 20, 4)));
  }
  EXPECT_LT(client.connection->memory()->bytes(), before + 1000) << "they have left";
}

// Streams times metadata: headers by reference cost their sender nothing.
TEST(HostileClient, CallsThatNeedNoMetadataKeepNoneAndFewOfThemWatch) {
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

TEST(HostileClient, WatchersAtTheLimitAreServedAndOneMoreIsRefusedAndCounted) {
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
  client.Say(Frame(wire::kReset, 0, 1, wire::Number(8, 4)));
  watch(stream + 2);
  EXPECT_EQ(client.answers[stream + 2].messages.size(), 1u) << "another one's place";
}

TEST(HostileClient, ReflectionRepeatsNoLongQuestion) {
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
TEST(HostileClient, ConnectionsAndCallsTakeNoMoreThanIsCounted) {
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
  // The smallest entries fill the table with the most of them.
  std::string full = wire::Block(Post(kWatch));
  for (int i = 0; i < 124; ++i) full += std::string("\x40\x01") + "a" + std::string(1, '\0');
  const std::string hello = wire::kPreface + Frame(wire::kSettings, 0, 0, "") +
                            Frame(wire::kHeaders, kEndHeaders, 1, full);
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
  for (uint32_t i = 1; i <= kCalls; ++i) {
    calls += Headers(2 * i + 1, Post(kReflection)) + Data(2 * i + 1, "\0");
  }
  const size_t counted_before = first.services.memory->bytes(), calls_before = allocated();
  first.Say(calls);
  const size_t counted = first.services.memory->bytes() - counted_before;
  const size_t of_call = (allocated() - calls_before) / kCalls;
  RecordProperty("call_bytes", static_cast<int>(of_call));
  EXPECT_GE(counted / kCalls, kCallBytes);
  EXPECT_LE(of_call, kCallBytes);
}

// ---- what the client does not take of a status

void Fail(WireClient& client, uint32_t stream, const std::string& message) {
  client.Say(Call(stream));
  const auto live = std::exchange(client.pipeline.live, {});
  for (const auto& [id, one] : live) {
    one.sink->OnError({ApiCode::kInvalidArgument, message, "", 0});
  }
  client.Hear();
}

TEST(HostileClient, AStatusIsSaidInFewWordsWhateverItsMessage) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  Fail(client, 1, std::string(70'000, 'x'));
  EXPECT_EQ(client.answers[1].status(), "3");
  EXPECT_TRUE(client.answers[1].ended);
  EXPECT_EQ(client.answers[1].trailer("grpc-message").size(), 2048u);
  Fail(client, 3, "short");
  EXPECT_EQ(client.answers[3].trailer("grpc-message"), "short");
}

size_t TrailersSize(const wire::Answer& answer) {
  const wire::HeaderPairs& fields = answer.trailers.empty() ? answer.headers : answer.trailers;
  size_t size = 0;
  for (const auto& [name, value] : fields) size += name.size() + value.size() + 32;
  return size;
}

TEST(HostileClient, TrailersAreCutToWhatTheClientSaysItTakes) {
  const std::string message(500, 'm');
  size_t whole = 0;
  for (const size_t less : {0u, 100u, 480u, 500u, 560u, 580u}) {
    WireClient client;
    client.Hello(whole == 0 ? Frame(wire::kSettings, 0, 0, "") : wire::Setting(6, whole - less));
    client.pipeline.mode = FakePipeline::Mode::kManual;
    client.connection->Receive(Call(1));
    const auto live = std::exchange(client.pipeline.live, {});
    live.begin()->second.sink->OnError({ApiCode::kUnavailable, message, "", 1000});
    client.Hear();
    EXPECT_EQ(client.answers[1].status(), "14") << less;
    EXPECT_EQ(client.answers[1].reset, -1) << less;
    if (whole == 0) {  // but for the details, which go first
      const std::string details = client.answers[1].trailer("grpc-status-details-bin");
      whole = TrailersSize(client.answers[1]) - details.size() - 23 - 32;
      EXPECT_GT(details.size(), 0u);
      continue;
    }
    EXPECT_EQ(client.answers[1].trailer("grpc-status-details-bin"), "");
    EXPECT_LE(TrailersSize(client.answers[1]), whole - less);
    const std::string told = client.answers[1].trailer("grpc-message");
    EXPECT_EQ(told.size(), less < 500 ? 500 - less : 0u) << "words go first";
  }
  WireClient client;
  client.Hello(wire::Setting(6, 40));
  client.pipeline.mode = FakePipeline::Mode::kManual;
  Fail(client, 1, message);
  EXPECT_EQ(client.answers[1].reset, kInternalError) << "not even the status fits";
  EXPECT_EQ(client.connection->calls(), 0u);
}

TEST(HostileClient, PingsForNothingAreToldInTheWordThatClientsKnow) {
  WireClient client;
  client.Hello();
  std::string pings;
  for (int i = 0; i < 200; ++i) pings += Frame(wire::kPing, 0, 0, "12345678");
  client.Say(pings);
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(client.went_away, kCalm);
  EXPECT_EQ(client.last_words, "too_many_pings");
}

// ---- streams that the client makes us reset

// What a client says on a stream of its own, that is answered by a reset or by the connection's
// end.
struct Breach {
  const char* name;
  std::function<std::string(uint32_t)> of;
};

std::vector<Breach> Breaches() {
  const std::string message = Message(GenerateBytes());
  const auto lying = [message](uint32_t stream) {
    return Headers(stream, Post(kGenerate, {{"content-length", "3"}})) +
           Data(stream, message, kEndStream);
  };
  const auto after_end = [](uint32_t stream) { return Call(stream) + Data(stream, "more"); };
  const auto no_update = [](uint32_t stream) {
    return Call(stream) + Frame(wire::kWindowUpdate, 0, stream, wire::Number(0, 4));
  };
  const auto overflow = [](uint32_t stream) {
    return Call(stream) + Frame(wire::kWindowUpdate, 0, stream, wire::Number(INT32_MAX, 4));
  };
  const auto of_itself = [](uint32_t stream) {
    return Call(stream) + Frame(2, 0, stream, wire::Number(stream, 4) + "w");
  };
  const auto short_priority = [](uint32_t stream) {
    return Call(stream) + Frame(2, 0, stream, "four");
  };
  const auto upper_case = [](uint32_t stream) {
    return Headers(stream, Post(kGenerate, {{"Upper", "case"}}));
  };
  return {{"a content-length that lies", lying},
          {"DATA after the end", after_end},
          {"a WINDOW_UPDATE of nothing", no_update},
          {"a window that overflows", overflow},
          {"a stream that depends on itself", of_itself},
          {"a PRIORITY that is too short", short_priority},
          {"a name in upper case", upper_case}};
}

TEST(HostileClient, StreamsThatTheClientMakesUsResetCountLikeItsResets) {
  constexpr int kMost = 10;
  for (const Breach& breach : Breaches()) {
    GrpcEdgeLimits limits;
    limits.guard.resets = {0.001, kMost};
    WireClient client(limits);
    client.Hello();
    client.pipeline.mode = FakePipeline::Mode::kManual;
    uint32_t stream = 1;
    for (; !client.closed && stream < 100; stream += 2) client.Say(breach.of(stream));
    EXPECT_TRUE(client.closed) << breach.name;
    EXPECT_LE(client.pipeline.seen.size(), kMost + 2u) << breach.name;
    const bool at_once = stream == 3;  // the connection ends with the first one
    EXPECT_EQ(Closed(client, "resets"), at_once ? 0u : 1u) << breach.name;
    if (!at_once) {
      EXPECT_EQ(stream, 2u * (kMost + 2) + 1) << breach.name;
    }
  }
}

// ---- requests that are no calls

TEST(HostileClient, WhatIsNoGrpcIsAnsweredWhenItGoesOnOrWhenItsTimeIsUp) {
  GrpcEdgeLimits limits;
  limits.message_timeout = kMicrosPerSecond;
  WireClient client(limits);
  client.Hello();
  wire::HeaderPairs page = Post("/page");
  page[0].second = "GET";
  page[4].second = "text/html";
  for (const uint32_t stream : {1u, 3u}) client.Say(Headers(stream, page));
  EXPECT_EQ(client.connection->memory()->bytes(), kConnectionBytes + 2 * kCallBytes);
  EXPECT_EQ(client.answers.count(1), 0u);
  client.Say(Data(1, "more"));
  EXPECT_EQ(client.answers[1].header(":status"), "404");
  client.Wait(kMicrosPerSecond - 5000);
  EXPECT_EQ(client.answers.count(3), 0u);
  client.Wait(10'000);
  EXPECT_EQ(client.answers[3].header(":status"), "404");
  EXPECT_EQ(client.connection->memory()->bytes(), kConnectionBytes);
  client.Say(Headers(5, page, kEndStream));
  EXPECT_EQ(client.answers[5].header(":status"), "404") << "at once";
}

// ---- answers that are not streamed

TEST(HostileClient, AnAnswerThatGrowsUntilItIsWholeIsCountedMeanwhile) {
  constexpr size_t kTokens = 20, kText = 10'000;
  for (const bool fits : {true, false}) {
    GrpcEdgeLimits limits;
    const size_t answer = fits ? 1u << 30 : kTokens * kText / 2;
    limits.max_connection_memory_bytes = kConnectionBytes + 2 * kCallBytes + answer;
    WireClient client(limits);
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
    size_t told = 0;
    for (; told < kTokens && client.pipeline.cancelled.empty(); ++told) {
      Delta delta = FakePipeline::Token(0, told);
      delta.text = std::string(kText, 't');
      live.sink->OnDelta(delta);
      client.Hear();
    }
    EXPECT_EQ(told == kTokens, fits);
    EXPECT_EQ(client.answers[1].status(), fits ? "" : "8");
    EXPECT_EQ(client.counters.connection_memory_refused.value(), fits ? 0u : 1u);
  }
}

}  // namespace
}  // namespace quire
