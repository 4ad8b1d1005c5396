// What clients of gRPC's libraries never send, and what each of them is answered.
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/router/support/wire_client.h"

namespace quire::wire {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(compressBound(text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string TextOf(const Answer& answer) {
  std::string text;
  for (const std::string& message : answer.messages) {
    v1::GenerateResponse response;
    EXPECT_TRUE(response.ParseFromString(message));
    text += response.delta().text();
  }
  return text;
}

TEST(GrpcWire, AnAnswerIsHeadersMessagesAndTrailers) {
  WireClient client;
  client.Hello();
  client.Say(Call(1));
  const Answer& answer = client.answers[1];
  EXPECT_EQ(answer.headers, (HeaderPairs{{":status", "200"},
                                         {"content-type", "application/grpc"},
                                         {"grpc-accept-encoding", "identity,deflate,gzip"},
                                         {"x-request-id", "rid"},
                                         {"x-quire-worker", "w0"}}));
  EXPECT_EQ(TextOf(answer), "tok0 tok1 tok2");
  EXPECT_EQ(answer.trailers, (HeaderPairs{{"grpc-status", "0"}}));
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.reset, -1);
  EXPECT_EQ(client.connection->calls(), 0u);
  EXPECT_EQ(client.settings_acked, 1);
}

TEST(GrpcWire, AnySplitIsAnsweredTheSame) {
  for (const size_t step : {1u, 2u, 7u, 64u}) {
    WireClient client;
    const std::string bytes = kPreface + Frame(kSettings, 0, 0, "") + Call(1) + Call(3);
    for (size_t at = 0; at < bytes.size(); at += step) {
      client.Say(std::string_view(bytes).substr(at, step));
    }
    for (const uint32_t stream : {1u, 3u}) {
      EXPECT_EQ(TextOf(client.answers[stream]), "tok0 tok1 tok2") << step;
      EXPECT_EQ(client.answers[stream].status(), "0");
    }
  }
}

TEST(GrpcWire, WhatIsNoGrpcHearsSoInHttpsWords) {
  struct Case {
    HeaderPairs fields;
    const char* status;
  };
  const auto request = [](const char* method, const std::string& path, const char* type) {
    return HeaderPairs{{":method", method},
                       {":scheme", "http"},
                       {":path", path},
                       {":authority", "x"},
                       {"content-type", type}};
  };
  const Case cases[] = {{request("GET", "/livez", "text/plain"), "404"},
                        {request("GET", kGenerate, "text/plain"), "405"},
                        {request("PUT", "/a", "application/grpc"), "405"},
                        {request("POST", kGenerate, "application/json"), "415"},
                        {request("POST", kGenerate, "application/grpc-web"), "415"},
                        {request("POST", kGenerate, "application/grpc+json"), "415"}};
  WireClient client;
  client.Hello();
  uint32_t stream = 1;
  for (const Case& one : cases) {
    client.Say(Headers(stream, one.fields) + Data(stream, "some body"));
    const Answer& answer = client.answers[stream];
    EXPECT_EQ(answer.header(":status"), one.status) << stream;
    EXPECT_EQ(answer.header("allow"), one.status == std::string("405") ? "POST" : "");
    EXPECT_TRUE(answer.ended && answer.reset == kNoError) << "its body is not waited for";
    stream += 2;
  }
  for (const char* type : {"application/grpc+proto", "application/grpc;charset=utf-8"}) {
    client.Say(Headers(stream, request("POST", kGenerate, type)) +
               Data(stream, Message(GenerateBytes()), kEndStream));
    EXPECT_EQ(client.answers[stream].status(), "0") << type;
    stream += 2;
  }
}

TEST(GrpcWire, MethodsAndEncodingsThatAreNotServedAreUnimplemented) {
  WireClient client;
  client.Hello();
  client.Say(Headers(1, Post("/quire.v1.Inference/Nothing")));
  EXPECT_EQ(client.answers[1].headers,
            (HeaderPairs{{":status", "200"},
                         {"content-type", "application/grpc"},
                         {"grpc-status", "12"},
                         {"grpc-message",
                          "/quire.v1.Inference/Nothing is not served; server reflection lists "
                          "what is"}}));
  EXPECT_TRUE(client.answers[1].ended && client.answers[1].trailers.empty());
  client.Say(Headers(3, Post(kGenerate, {{"grpc-encoding", "snappy"}})));
  EXPECT_EQ(client.answers[3].status(), "12");
  EXPECT_EQ(client.answers[3].trailer("grpc-accept-encoding"), "identity,deflate,gzip");
}

TEST(GrpcWire, CompressedMessagesAreTakenInTheEncodingThatWasSaid) {
  WireClient client;
  client.Hello();
  const std::string packed = Gzip(GenerateBytes());
  client.Say(Headers(1, Post(kGenerate, {{"grpc-encoding", "gzip"}})) +
             Data(1, Message(packed, '\1'), kEndStream));
  EXPECT_TRUE(client.pipeline.seen.empty()) << "they are unpacked beside the loop, however small";
  EXPECT_EQ(client.services.bodies->bytes(), packed.size());
  client.Wait(2000);
  EXPECT_EQ(TextOf(client.answers[1]), "tok0 tok1 tok2");
  client.Say(Headers(3, Post(kGenerate)) + Data(3, Message(packed, '\1'), kEndStream));
  EXPECT_EQ(client.answers[3].status(), "13") << "no encoding was said";
  client.Say(Headers(5, Post(kGenerate, {{"grpc-encoding", "gzip"}})) +
             Data(5, Message("no gzip", '\1'), kEndStream));
  client.Wait(2000);
  EXPECT_EQ(client.answers[5].status(), "13");
  client.Say(Headers(7, Post(kGenerate)) + Data(7, Message("", '\7'), kEndStream));
  EXPECT_EQ(client.answers[7].status(), "13") << "a prefix that is none";
  EXPECT_EQ(client.pipeline.seen.size(), 1u);
}

TEST(GrpcWire, CompressedMessagesAreHeldToTheLimitsOfWhatComesOutOfThem) {
  constexpr size_t kTotal = 100'000;
  GrpcEdgeLimits limits;
  limits.max_receive_bytes = 200'000;
  WireClient client(limits, kTotal);
  client.Hello();
  const auto call = [&](uint32_t stream, size_t bytes) {
    client.Say(
        Headers(stream, Post(kGenerate, {{"grpc-encoding", "gzip"}})) +
        Data(stream, Message(Gzip(GenerateBytes(3, std::string(bytes, 'a'))), '\1'), kEndStream));
    client.Wait(2000);
  };
  // Buffers double: the last one counts beside the one before it.
  call(1, 65'000);
  EXPECT_EQ(client.answers[1].status(), "0");
  call(3, 66'000);
  EXPECT_EQ(client.answers[3].status(), "14");
  EXPECT_EQ(client.counters.bodies_refused.value(), 1u);
  EXPECT_EQ(client.services.bodies->bytes(), 0u);
  limits.max_receive_bytes = 20'000;
  client.host->limits = limits;
  call(5, limits.max_receive_bytes);
  EXPECT_EQ(client.answers[5].status(), "8");
  EXPECT_EQ(client.answers[5].trailer("grpc-message"),
            "Received message larger than max (more vs. 20000)");
  EXPECT_EQ(client.counters.grpc_messages_too_large.value(), 1u);
  EXPECT_EQ(client.services.bodies->bytes(), 0u);
}

TEST(GrpcWire, OneMessageIsTakenWhereOneIs) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Headers(1, Post(kGenerate)) + Data(1, "", kEndStream));
  EXPECT_EQ(client.answers[1].status(), "12") << "none came";
  client.Say(Headers(3, Post(kGenerate), kEndStream));
  EXPECT_EQ(client.answers[3].status(), "12");
  client.Say(Headers(5, Post(kGenerate)) + Data(5, Message(GenerateBytes())));
  EXPECT_EQ(client.pipeline.live.size(), 1u) << "it is begun before its client's end";
  client.Say(Data(5, Message(GenerateBytes()), kEndStream));
  EXPECT_EQ(client.answers[5].status(), "12");
  EXPECT_EQ(client.pipeline.cancelled.size(), 1u);
  const std::string half = Message(GenerateBytes());
  client.Say(Headers(7, Post(kGenerate)) + Data(7, half.substr(0, half.size() - 1), kEndStream));
  EXPECT_EQ(client.answers[7].status(), "13") << "half a message";
  client.Say(Headers(9, Post(kGenerate)) + Data(9, Message("\xff\xff\xff"), kEndStream));
  EXPECT_EQ(client.answers[9].status(), "13") << "no Protobuf";
  EXPECT_EQ(client.pipeline.seen.size(), 1u);
}

TEST(GrpcWire, AResetIsHeardInEachPhase) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  const std::string reset = Number(kCancel, 4);
  const std::string message = Message(GenerateBytes());
  client.Say(Headers(1, Post(kGenerate)) + Frame(kReset, 0, 1, reset));
  client.Say(Headers(3, Post(kGenerate)) + Data(3, message.substr(0, 7)));
  client.Say(Frame(kReset, 0, 3, reset));
  EXPECT_EQ(client.counters.grpc_cancelled.value(), 0u) << "nothing had begun";
  client.Say(Call(5));
  EXPECT_EQ(client.pipeline.live.size(), 1u);
  client.Say(Frame(kReset, 0, 5, reset));
  EXPECT_EQ(client.pipeline.live.size(), 0u);
  client.Say(Call(7));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  live.sink->OnDelta(FakePipeline::Token(0, 0));
  client.Hear();
  EXPECT_EQ(TextOf(client.answers[7]), "tok0");
  client.Say(Frame(kReset, 0, 7, reset));
  client.pipeline.mode = FakePipeline::Mode::kEcho;
  client.Say(Call(9) + Frame(kReset, 0, 9, reset));
  client.Say(Call(11));
  client.Say(Frame(kReset, 0, 11, reset));  // after its end
  EXPECT_EQ(client.answers[11].status(), "0");
  EXPECT_EQ(client.pipeline.cancelled.size(), 3u);
  EXPECT_EQ(client.counters.grpc_cancelled.value(), 3u);
  EXPECT_EQ(client.connection->calls(), 0u);
  EXPECT_FALSE(client.closed);
}

TEST(GrpcWire, AClientThatGivesNoWindowGetsNoBytesAndHoldsItsWorkerBack) {
  WireClient client;
  client.Hello(Setting(4, 0));  // SETTINGS_INITIAL_WINDOW_SIZE
  client.pipeline.mode = FakePipeline::Mode::kFlood;
  client.Say(Call(1, GenerateBytes(1000)));
  EXPECT_EQ(client.answers[1].header(":status"), "200");
  EXPECT_TRUE(client.answers[1].messages.empty());
  EXPECT_LE(client.pipeline.live.begin()->second.sent, client.pipeline.window);
  client.Say(Frame(kWindowUpdate, 0, 1, Number(100, 4)));
  const uint64_t sent = client.pipeline.live.begin()->second.sent;
  EXPECT_LE(sent, 4 * client.pipeline.window) << "about a hundred bytes' worth";
  client.Say(Frame(kWindowUpdate, 0, 1, Number(1 << 20, 4)));
  for (int i = 0; i < 100 && !client.answers[1].ended; ++i) {
    client.Say(Frame(kWindowUpdate, 0, 0, Number(1 << 20, 4)));
  }
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_LE(client.pipeline.max_ahead, client.pipeline.window);
}

TEST(GrpcWire, AClientThatGoesAwayGetsTheEndOfItsCalls) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1) + Frame(kGoAway, 0, 0, Number(0, 8)));
  EXPECT_FALSE(client.closed);
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  client.pipeline.live.clear();
  live.sink->OnError({ApiCode::kUnavailable, "the end 100%", "", 1500});
  client.Hear();
  EXPECT_EQ(client.answers[1].status(), "14");
  EXPECT_EQ(client.answers[1].trailer("grpc-message"), "the end 100%25");
  EXPECT_EQ(client.answers[1].trailer("retry-after"), "2");
  EXPECT_EQ(client.answers[1].trailer("grpc-retry-pushback-ms"), "1500");
  EXPECT_TRUE(client.closed);
}

TEST(GrpcWire, TrailersOfAClientEndItsSide) {
  WireClient client;
  client.Hello();
  client.Say(Headers(1, Post(kGenerate)) + Data(1, Message(GenerateBytes())) +
             Headers(1, {{"x-late", "1"}}, kEndStream));
  EXPECT_EQ(client.answers[1].status(), "0");
  EXPECT_EQ(client.answers[1].reset, -1);
}

TEST(GrpcWire, WhatComesAfterAnEndDoesNotReachTheCall) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1) + Call(3));
  client.Say(Data(1, Message(GenerateBytes())));
  EXPECT_TRUE(client.answers[1].reset == kStreamClosed || client.went_away == kStreamClosed);
  EXPECT_EQ(client.pipeline.seen.size(), 2u);
}

TEST(GrpcWire, BytesThatAreNoHttp2AreToldSo) {
  for (const std::string& bytes :
       {std::string("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
        kPreface + Frame(kContinuation, kEndHeaders, 1, "x"),
        kPreface + Frame(kSettings, 0, 0, "") + Frame(kHeaders, 0, 1, "x") +
            Frame(kPing, 0, 0, "12345678")}) {
    WireClient client;
    client.Say(bytes);
    EXPECT_TRUE(client.closed);
    EXPECT_EQ(client.went_away, kProtocolError);
  }
  WireClient client;
  client.Hello();
  client.Say(Frame(kHeaders, kEndHeaders | kEndStream, 1, "\xff\xff\xff\xff\xff\xff"));
  EXPECT_TRUE(client.closed) << "no header block";
  EXPECT_NE(client.went_away, -1);
}

TEST(GrpcWire, AFloodOfContinuationsEndsTheConnection) {
  WireClient client;
  client.Hello();
  std::string flood = Frame(kHeaders, 0, 1, "");
  for (int i = 0; i < 1000; ++i) flood += Frame(kContinuation, 0, 1, "");
  client.Say(flood);
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(client.went_away, kCalm);
  EXPECT_EQ(client.counters.http2_guard_closed.at("continuations")->value(), 1u);
}

TEST(GrpcWire, PastARateTheClientIsToldToCalmDownAndItsCallsEnd) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1));
  std::string pings;
  for (int i = 0; i < 1000; ++i) pings += Frame(kPing, 0, 0, "12345678");
  client.Say(pings);
  EXPECT_TRUE(client.closed);
  EXPECT_EQ(client.went_away, kCalm);
  EXPECT_EQ(client.counters.http2_guard_closed.at("pings")->value(), 1u);
  EXPECT_EQ(client.counters.http2_guard_closed.at("resets")->value(), 0u);
  EXPECT_EQ(client.pipeline.cancelled.size(), 1u);
}

// As a Go client does it through a stream of a thousand tokens.
TEST(GrpcWire, AClientThatPingsForEachDataFrameIsServed) {
  WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Call(1, GenerateBytes(1000)));
  const FakePipeline::Live live = client.pipeline.live.begin()->second;
  live.sink->OnStarted(FakePipeline::StartedFor(live.request));
  for (uint64_t i = 0; i < 1000; ++i) {
    live.sink->OnDelta(FakePipeline::Token(0, i));
    client.Say(Frame(kPing, 0, 0, "12345678"));
    ASSERT_FALSE(client.closed) << i;
  }
  EXPECT_EQ(client.pongs, 1000);
}

TEST(GrpcWire, ResetsLeaveNothingBehind) {
  GrpcEdgeLimits limits;
  limits.guard.resets = limits.guard.new_streams = {1e9, 1e9};
  limits.guard.header_bytes = {1e12, 1e12};
  WireClient client(limits);
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  const std::string reset = Number(kCancel, 4);
  uint32_t stream = 1;
  for (int i = 0; i < 10'000; ++i, stream += 4) {
    client.Say(Headers(stream, Post(kGenerate)) + Frame(kReset, 0, stream, reset) +
               Call(stream + 2) + Frame(kReset, 0, stream + 2, reset));
    client.answers.clear();
    ASSERT_EQ(client.connection->calls(), 0u);
  }
  EXPECT_EQ(client.pipeline.cancelled.size(), 10'000u);
  EXPECT_EQ(client.connection->session().open_streams(), 0u);
}

}  // namespace
}  // namespace quire::wire
