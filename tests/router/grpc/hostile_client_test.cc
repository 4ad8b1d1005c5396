// What one client's connection may cost in work: headers by reference, floods of small things,
// streams that it makes the server reset.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "common/grpc/held_memory.h"
#include "tests/router/support/hostile_wire.h"

namespace quire::wire {
namespace {

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
  client.Say(Planting(1, kCheck, 0) + Frame(kReset, 0, 1, Number(8, 4)));
  client.Say(Referring(1, kCheck, 4000, 0));
  client.Say(Referring(1, kCheck, 4000, 0));
  EXPECT_FALSE(client.closed);
  client.Say(Referring(1, kCheck, 16'000, 0));
  client.Say(Frame(kPing, 0, 0, "12345678"));
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(Closed(client, "decoded_header_block"), 1u);
}

// Another connection's work is posted in the middle of what one has sent at once.
TEST(HostileClient, AFloodOfFramesIsTakenInTurnsWithOthers) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  std::string flood = Headers(1, Post(kReflection));
  for (int i = 0; i < 3900; ++i) flood += Frame(kData, 0, 1, "");
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

size_t TrailersSize(const Answer& answer) {
  const HeaderPairs& fields = answer.trailers.empty() ? answer.headers : answer.trailers;
  size_t size = 0;
  for (const auto& [name, value] : fields) size += name.size() + value.size() + 32;
  return size;
}

TEST(HostileClient, TrailersAreCutToWhatTheClientSaysItTakes) {
  const std::string message(500, 'm');
  size_t whole = 0;
  for (const size_t less : {0u, 100u, 480u, 500u, 560u, 580u}) {
    WireClient client;
    client.Hello(whole == 0 ? Frame(kSettings, 0, 0, "") : Setting(6, whole - less));
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
  client.Hello(Setting(6, 40));
  client.pipeline.mode = FakePipeline::Mode::kManual;
  Fail(client, 1, message);
  EXPECT_EQ(client.answers[1].reset, kInternalError) << "not even the status fits";
  EXPECT_EQ(client.connection->calls(), 0u);
}

TEST(HostileClient, PingsForNothingAreToldInTheWordThatClientsKnow) {
  WireClient client;
  client.Hello();
  std::string pings;
  for (int i = 0; i < 200; ++i) pings += Frame(kPing, 0, 0, "12345678");
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
    return Call(stream) + Frame(kWindowUpdate, 0, stream, Number(0, 4));
  };
  const auto overflow = [](uint32_t stream) {
    return Call(stream) + Frame(kWindowUpdate, 0, stream, Number(INT32_MAX, 4));
  };
  const auto of_itself = [](uint32_t stream) {
    return Call(stream) + Frame(2, 0, stream, Number(stream, 4) + "w");
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
  HeaderPairs page = Post("/page");
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

}  // namespace
}  // namespace quire::wire
