// How connections end, and peers that do not keep to the rules.
#include <gtest/gtest.h>

#include "tests/common/http2/two_ends.h"

namespace quire::http2 {
namespace {

using Side = Session::Side;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string out;
  for (int shift = 16; shift >= 0; shift -= 8) {
    out += static_cast<char>(payload.size() >> shift);
  }
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(stream >> shift);
  return out + payload;
}

// What a client with a table of its own would begin with.
const std::string kHello = kPreface + Frame(4, 0, 0, "");
const std::string kBlock("\x83\x86\x84\x41\x01\x61", 6);  // POST http / of "a"

TEST(Http2SessionEnd, NoticeThenGoAwayLetsStreamsEnd) {
  End client(Side::kClient);
  End server(Side::kServer);
  const StreamId first = client.session.Open(kRequest);
  Shuttle(client, server);
  server.session.GiveNotice();
  const StreamId second = client.session.Open(kRequest);  // crosses the notice
  Shuttle(client, server);
  EXPECT_TRUE(client.Told("goaway 2147483647 0 "));
  EXPECT_EQ(server.last_stream, second);
  server.session.GoAway(ErrorCode::kNoError, "leaving");
  Shuttle(client, server);
  EXPECT_TRUE(client.Told("goaway 3 0 leaving"));
  EXPECT_FALSE(server.session.over());
  const StreamId third = client.session.Open(kRequest);
  Shuttle(client, server);
  EXPECT_TRUE(client.Told("closed " + std::to_string(third) + " 7")) << "it was never sent";
  for (const StreamId stream : {first, second}) server.session.RespondAndEnd(stream, kTrailersOnly);
  Shuttle(client, server);
  EXPECT_TRUE(server.session.over());
  EXPECT_TRUE(client.session.over());
}

TEST(Http2SessionEnd, TerminateClosesWhatIsOpen) {
  End client(Side::kClient);
  End server(Side::kServer);
  client.session.Open(kRequest);
  Shuttle(client, server);
  server.session.Terminate(ErrorCode::kEnhanceYourCalm);
  Shuttle(client, server);
  EXPECT_TRUE(server.session.over());
  EXPECT_TRUE(client.Told("goaway 1 11 "));
}

TEST(Http2SessionEnd, AStreamThatIsResetBeforeItWasSentIsClosed) {
  End client(Side::kClient);
  End server(Side::kServer);
  const StreamId stream = client.session.Open(kRequest);
  client.session.Write(stream, "x");
  client.session.Reset(stream, ErrorCode::kCancel);
  Shuttle(client, server);
  EXPECT_EQ(client.session.open_streams(), 0u);
  EXPECT_EQ(client.journal, std::vector<std::string>{"closed 1 8"});
  EXPECT_TRUE(server.data.empty());
}

TEST(Http2SessionEnd, WhatIsNoHttp2IsAnError) {
  End server(Side::kServer);
  EXPECT_FALSE(server.session.Receive("GET / HTTP/1.1\r\n\r\n").ok());
  End client(Side::kClient);
  const absl::Status status = client.session.Receive("HTTP/1.1 400 Bad Request\r\n\r\n");
  client.TakeOut();
  EXPECT_TRUE(!status.ok() || client.session.over());
}

TEST(Http2SessionEnd, ABreachOfTheProtocolIsToldAndEndsTheConnection) {
  End server(Side::kServer);
  EXPECT_TRUE(server.session.Receive(kHello + Frame(0, 0, 1, "data of no stream")).ok());
  EXPECT_NE(server.TakeOut().find('\x07'), std::string::npos);
  EXPECT_TRUE(server.session.over());
}

TEST(Http2SessionEnd, APeerThatDoesNotListenCannotMakeAnswersPileUp) {
  End server(Side::kServer);
  ASSERT_TRUE(server.session.Receive(kHello).ok());
  absl::Status status;
  int pings = 0;
  while (status.ok() && pings < 100'000) {
    ++pings;
    status = server.session.Receive(Frame(6, 0, 0, "12345678"));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(pings, 1002);
}

TEST(Http2SessionEnd, RefusalsThatNobodyReadsAreBounded) {
  Settings settings;
  settings.max_concurrent_streams = 1;
  settings.max_waiting_frames = 100;
  End server(Side::kServer, settings);
  ASSERT_TRUE(server.session.Receive(kHello).ok());
  absl::Status status;
  uint32_t stream = 1;
  for (; status.ok() && stream < 100'000; stream += 2) {
    status = server.session.Receive(Frame(1, 4, stream, kBlock));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(stream, 300u);
  EXPECT_EQ(server.session.open_streams(), 1u);
}

TEST(Http2SessionEnd, AClientThatResetsWithoutEndIsSentAway) {
  Settings settings;
  settings.reset_burst = 50;
  settings.resets_per_second = 1;
  End server(Side::kServer, settings);
  ASSERT_TRUE(server.session.Receive(kHello).ok());
  uint32_t stream = 1;
  for (; !server.session.over() && stream < 10'000; stream += 2) {
    ASSERT_TRUE(server.session.Receive(Frame(1, 4, stream, kBlock)).ok());
    ASSERT_TRUE(server.session.Receive(Frame(3, 0, stream, std::string("\0\0\0\x08", 4))).ok());
    server.TakeOut();
  }
  EXPECT_TRUE(server.session.over());
  EXPECT_GT(stream, 100u);
}

TEST(Http2SessionEnd, AHeaderBlockWithoutEndIsEnded) {
  End server(Side::kServer);
  absl::Status status = server.session.Receive(kHello + Frame(1, 0, 1, kBlock));
  int frames = 0;
  while (status.ok() && !server.session.over() && frames < 10'000) {
    ++frames;
    status = server.session.Receive(Frame(9, 0, 1, std::string("\x40\x01x\x01y", 5)));
    server.TakeOut();
  }
  EXPECT_LE(frames, 9);
}

TEST(Http2SessionEnd, PromisesOfAServerAreRefused) {
  End client(Side::kClient);
  client.session.Open(kRequest);
  client.TakeOut();
  const std::string promise = Frame(5, 4, 1, std::string("\0\0\0\x02", 4) + kBlock);
  EXPECT_TRUE(client.session.Receive(Frame(4, 0, 0, "") + promise).ok());
  client.TakeOut();
  EXPECT_EQ(client.frames_sent[3], 1) << "reset at once";
  EXPECT_TRUE(client.journal.empty());
  EXPECT_EQ(client.session.open_streams(), 1u);
}

TEST(Http2SessionEnd, InformationalAnswersAreNotToldOf) {
  End client(Side::kClient);
  client.session.Open(kRequest);
  client.TakeOut();
  const std::string early("\x48\x03\x31\x30\x33", 5);  // :status 103
  const std::string fine("\x88", 1);                   // :status 200
  EXPECT_TRUE(
      client.session.Receive(Frame(4, 0, 0, "") + Frame(1, 4, 1, early) + Frame(1, 4, 1, fine))
          .ok());
  EXPECT_EQ(client.journal, std::vector<std::string>{"headers 1 :status=200"});
}

TEST(Http2SessionEnd, HeadersThatCannotBeSentResetTheirStream) {
  const std::string huge(70'000, 'x');
  for (const bool as_trailers : {false, true}) {
    End client(Side::kClient);
    End server(Side::kServer);
    const StreamId stream = client.session.Open(kRequest);
    Shuttle(client, server);
    const std::vector<Header> fields = {{":status", "200"}, {"grpc-message", huge}};
    if (as_trailers) {
      server.session.Respond(stream, kResponse);
      server.session.Write(stream, "body");
      Shuttle(client, server);
      server.session.End(stream, Headers(fields).subspan(1));
    } else {
      server.session.RespondAndEnd(stream, fields);
    }
    Shuttle(client, server);
    EXPECT_TRUE(server.Told("closed 1 2"));
    EXPECT_TRUE(client.Told("closed 1 2"));
    EXPECT_EQ(server.session.open_streams(), 0u);
  }
}

// A value in the table, then references to it: a byte each.
const std::string kPlanting =
    "\x40\x01"
    "a"
    "\x7f\xa1\x1e" +
    std::string(4000, 'v');
const std::string kReferences(16'000, '\xbe');
constexpr size_t kFieldBytes = 1 + 4000 + 32;

TEST(Http2SessionEnd, DecodingStopsWhereItsHandlerSaysSo) {
  End server(Side::kServer);
  ASSERT_TRUE(server.session.Receive(kHello + Frame(1, 5, 1, kBlock + kPlanting)).ok());
  const size_t before = server.fields_decoded;
  EXPECT_EQ(before, 5u);
  server.most_decoded = server.decoded + 10 * kFieldBytes;
  const absl::Status status = server.session.Receive(Frame(1, 5, 3, kReferences));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server.fields_decoded, before + 11);
}

TEST(Http2SessionEnd, FieldsThatAreLeftOutCostAsMuch) {
  End server(Side::kServer);
  const std::string broken(
      "\x40\x01"
      "a"
      "\x01\x01",
      5);  // no value may have that byte
  ASSERT_TRUE(server.session.Receive(kHello + Frame(1, 5, 1, kBlock + broken)).ok());
  EXPECT_EQ(server.journal[0], "headers 1 :method=POST :scheme=http :path=/ :authority=a ends");
  const size_t before = server.fields_decoded;
  EXPECT_EQ(before, 5u);
  server.most_decoded = server.decoded + 1000;
  EXPECT_FALSE(server.session.Receive(Frame(1, 5, 3, kReferences)).ok());
  EXPECT_LT(server.fields_decoded, before + 50);
}

TEST(Http2SessionEnd, WhatIsNoStreamsIsToldWithTheNextFrameAsTheMostItMayBe) {
  End server(Side::kServer);
  ASSERT_TRUE(server.session.Receive(kHello + Frame(1, 4, 1, kBlock + kPlanting)).ok());
  ASSERT_TRUE(server.session.Receive(Frame(3, 0, 1, std::string(4, '\0'))).ok());
  const size_t before = server.decoded;
  ASSERT_TRUE(server.session.Receive(Frame(1, 4, 1, kReferences)).ok());
  EXPECT_EQ(server.decoded, before) << "it may be a stream's yet";
  server.most_decoded = before + 32 * kReferences.size();
  ASSERT_TRUE(server.session.Receive(Frame(6, 0, 0, "12345678")).ok());
  EXPECT_EQ(server.decoded, server.most_decoded);
  ASSERT_TRUE(server.session.Receive(Frame(1, 4, 1, "\xbe")).ok());
  EXPECT_FALSE(server.session.Receive(Frame(6, 0, 0, "12345678")).ok());
}

TEST(Http2SessionEnd, APartOfABlockThatIsNoStreamsCountsAsAWholeOne) {
  End server(Side::kServer);
  ASSERT_TRUE(server.session.Receive(kHello + Frame(1, 4, 1, kBlock)).ok());
  ASSERT_TRUE(server.session.Receive(Frame(3, 0, 1, std::string(4, '\0'))).ok());
  const std::string parted = Frame(1, 0, 1, "\xbe") + Frame(9, 4, 1, kReferences);
  ASSERT_TRUE(server.session.Receive(parted + Frame(6, 0, 0, "12345678")).ok());
  EXPECT_GT(server.decoded, 32 * kReferences.size());
}

}  // namespace
}  // namespace quire::http2
