// What a call looks like from both ends, and what bounds it.
#include "common/http2/session.h"

#include <gtest/gtest.h>

#include "tests/common/http2/two_ends.h"

namespace quire::http2 {
namespace {

using Side = Session::Side;

TEST(Http2Session, ACallGoesBothWaysAndEndsWithTrailers) {
  End client(Side::kClient);
  End server(Side::kServer);
  const StreamId stream = client.session.Open(kRequest);
  client.session.Write(stream, "question");
  client.session.End(stream);
  Shuttle(client, server);
  EXPECT_EQ(
      server.journal,
      (std::vector<std::string>{
          "headers 1 :method=POST :scheme=http :path=/s/M :authority=a te=trailers", "end 1"}));
  EXPECT_EQ(server.data[stream], "question");

  server.session.Respond(stream, kResponse);
  server.session.Write(stream, "ans");
  server.session.Write(stream, 3, [](char* at) { std::string_view("wer").copy(at, 3); });
  EXPECT_EQ(server.session.Queued(stream), 6u);
  server.session.End(stream, kTrailers);
  Shuttle(client, server);
  EXPECT_EQ(client.data[stream], "answer");
  EXPECT_EQ(client.journal, (std::vector<std::string>{
                                "headers 1 :status=200 content-type=application/grpc",
                                "trailers 1 grpc-status=0 x-id=7 ends", "end 1", "closed 1 0"}));
  EXPECT_EQ(server.journal.back(), "closed 1 0");
  EXPECT_EQ(server.session.open_streams() + client.session.open_streams(), 0u);
  EXPECT_EQ(server.frames_sent[0], 1) << "what is written in one turn is one frame";
}

TEST(Http2Session, TrailersBehindABodyThatHasLeftAreOneFrame) {
  End client(Side::kClient);
  End server(Side::kServer);
  const StreamId stream = client.session.Open(kRequest);
  Shuttle(client, server);
  server.session.Respond(stream, kResponse);
  server.session.Write(stream, "answer");
  Shuttle(client, server);
  EXPECT_EQ(client.data[stream], "answer");
  server.session.End(stream, kTrailers);
  Shuttle(client, server);
  EXPECT_EQ(server.frames_sent[0], 1);
  EXPECT_TRUE(client.Told("trailers 1 grpc-status=0 x-id=7 ends"));
}

TEST(Http2Session, AServersEndClosesAStreamThatItsClientHasLeftOpen) {
  End client(Side::kClient);
  End server(Side::kServer);
  const StreamId stream = client.session.Open(kRequest);
  client.session.Write(stream, "more follows");
  Shuttle(client, server);
  server.session.RespondAndEnd(stream, kTrailersOnly);
  Shuttle(client, server);
  EXPECT_EQ(server.journal.back(), "closed 1 0");
  EXPECT_EQ(client.journal.back(), "closed 1 0");
  EXPECT_EQ(server.session.open_streams() + client.session.open_streams(), 0u);
  client.session.Write(stream, "does nothing");
  client.session.End(stream);
  client.session.Reset(stream, ErrorCode::kCancel);
  client.session.Consume(stream, 1);
  EXPECT_TRUE(client.TakeOut().empty());
}

TEST(Http2Session, AReaderThatDoesNotConsumeSlowsItsPeer) {
  Settings settings;
  settings.stream_window_bytes = 70'000;
  settings.connection_window_bytes = 100'000;
  End client(Side::kClient);
  End server(Side::kServer, settings);
  server.consumes = false;
  Shuttle(client, server);
  const StreamId first = client.session.Open(kRequest);
  const StreamId second = client.session.Open(kRequest);
  for (const StreamId stream : {first, second}) {
    client.session.Write(stream, std::string(200'000, 'x'));
  }
  Shuttle(client, server);
  const size_t before = server.data[first].size() + server.data[second].size();
  EXPECT_EQ(before, 100'000u) << "the connection's window";
  EXPECT_LE(server.data[first].size(), 70'000u);
  EXPECT_EQ(client.session.Queued(first) + client.session.Queued(second), 300'000u);

  // The connection's alone lets the other stream have its own window, and no more.
  server.session.ConsumeOfConnection(first, server.data[first].size());
  server.session.ConsumeOfConnection(second, server.data[second].size());
  Shuttle(client, server);
  EXPECT_EQ(server.data[first].size(), 70'000u);
  EXPECT_EQ(server.data[second].size(), 70'000u);

  server.session.Consume(first, 1'000'000);  // more than there is counts as all of it
  server.consumes = true;
  Shuttle(client, server);
  EXPECT_EQ(server.data[first].size(), 200'000u);
  EXPECT_EQ(server.data[second].size(), 70'000u);
}

TEST(Http2Session, AStreamThatIsResetGivesItsShareOfTheWindowBack) {
  Settings settings;
  settings.connection_window_bytes = 65'535;
  End client(Side::kClient);
  End server(Side::kServer, settings);
  server.consumes = false;
  for (int round = 0; round < 5; ++round) {
    const StreamId stream = client.session.Open(kRequest);
    client.session.Write(stream, std::string(60'000, 'x'));
    Shuttle(client, server);
    ASSERT_EQ(server.data[stream].size(), 60'000u) << round;
    if (round % 2 == 0) server.session.Reset(stream, ErrorCode::kRefusedStream);
    if (round % 2 == 1) client.session.Reset(stream, ErrorCode::kCancel);
    Shuttle(client, server);
    EXPECT_EQ(client.journal.back(),
              "closed " + std::to_string(stream) + (round % 2 == 0 ? " 7" : " 8"));
    EXPECT_EQ(client.journal.back(), server.journal.back());
  }
}

TEST(Http2Session, DataThatComesBehindAResetIsConsumed) {
  Settings settings;
  settings.connection_window_bytes = 65'535;
  End client(Side::kClient);
  End server(Side::kServer, settings);
  server.consumes = false;
  server.on_data = [&](StreamId stream) { server.session.Reset(stream, ErrorCode::kCancel); };
  for (int round = 0; round < 5; ++round) {
    const StreamId stream = client.session.Open(kRequest);
    client.session.Write(stream, std::string(60'000, 'x'));
    Shuttle(client, server);
    EXPECT_LE(server.data[stream].size(), 16'384u) << "nothing is told after the reset";
    EXPECT_EQ(client.journal.back(), "closed " + std::to_string(stream) + " 8") << round;
  }
}

TEST(Http2Session, HeadersPastTheLimitAreToldOfAndTheConnectionGoesOn) {
  Settings settings;
  settings.max_header_list_bytes = 1000;
  End client(Side::kClient);
  End server(Side::kServer, settings);
  std::vector<Header> headers = kRequest;
  size_t bytes = 0;
  for (const Header& header : headers) bytes += header.name.size() + header.value.size() + 32;
  const std::string fits(1000 - bytes - 32 - 1, 'v');
  headers.push_back({"x", fits});
  EXPECT_EQ(client.session.Open(headers), 1u);
  const std::string longer = fits + "v";
  headers.back().value = longer;
  EXPECT_EQ(client.session.Open(headers), 3u);
  EXPECT_EQ(client.session.Open(kRequest), 5u);
  Shuttle(client, server);
  ASSERT_EQ(server.journal.size(), 3u);
  EXPECT_EQ(server.journal[0].find("too large"), std::string::npos);
  EXPECT_NE(server.journal[1].find("te=trailers too large"), std::string::npos);
  EXPECT_EQ(server.journal[2].find("too large"), std::string::npos);
  // Ten thousand times a value of the table take no room either.
  headers.back().value = fits;
  headers.insert(headers.end(), 10'000, headers.back());
  client.session.Open(headers);
  Shuttle(client, server);
  EXPECT_TRUE(server.received.ok());
}

TEST(Http2Session, StreamsPastTheLimitAreRefusedOneByOne) {
  Settings settings;
  settings.max_concurrent_streams = 2;
  End client(Side::kClient);
  End server(Side::kServer, settings);
  for (int i = 0; i < 4; ++i) client.session.Open(kRequest);  // before it hears of the limit
  Shuttle(client, server);
  EXPECT_EQ(server.session.streams_refused(), 2u);
  EXPECT_TRUE(client.Told("closed 5 7") && client.Told("closed 7 7"));
  server.session.RespondAndEnd(1, kTrailersOnly);
  const StreamId next = client.session.Open(kRequest);
  Shuttle(client, server);
  EXPECT_EQ(server.last_stream, next);
  EXPECT_EQ(server.session.open_streams(), 2u);
}

TEST(Http2Session, AClientThatForgetsTheLimitIsRefusedToo) {
  Settings settings;
  settings.max_concurrent_streams = 1;
  End server(Side::kServer, settings);
  End client(Side::kClient);
  client.session.Open(kRequest);
  Shuttle(client, server);  // both have acknowledged the other's SETTINGS
  // A HEADERS frame of its own: indexed :method POST, :scheme http, :path /, and an authority.
  const std::string raw("\0\0\x06\x01\x04\0\0\0\x03\x83\x86\x84\x41\x01\x61", 15);
  EXPECT_TRUE(server.session.Receive(raw).ok());
  EXPECT_EQ(server.session.streams_refused(), 1u);
  Shuttle(client, server);
  EXPECT_FALSE(server.session.over());
  EXPECT_EQ(server.session.open_streams(), 1u);
}

TEST(Http2Session, AnySplitOfTheBytesMeansTheSame) {
  std::vector<std::string> whole;
  std::map<StreamId, std::string> data;
  for (const size_t step : {size_t{1} << 20, size_t{1}, size_t{7}, size_t{1000}}) {
    End client(Side::kClient);
    End server(Side::kServer);
    server.on_headers = [&](StreamId stream) {
      server.session.Respond(stream, kResponse);
      server.session.Write(stream, std::string(30'000, 'r'));
      server.session.End(stream, kTrailers);
    };
    for (int i = 0; i < 3; ++i) {
      const StreamId stream = client.session.Open(kRequest);
      client.session.Write(stream, std::string(20'000, 'q'));
      client.session.End(stream);
    }
    Shuttle(client, server, step);
    if (whole.empty()) {
      whole = client.journal;
      data = client.data;
      EXPECT_EQ(data[5].size(), 30'000u);
    }
    EXPECT_EQ(client.journal, whole) << step;
    EXPECT_EQ(client.data, data) << step;
  }
}

TEST(Http2Session, SendStopsWhereItIsAskedToAndSaysWhatHasLeft) {
  End client(Side::kClient);
  End server(Side::kServer);
  Shuttle(client, server);
  const StreamId stream = client.session.Open(kRequest);
  client.session.Write(stream, std::string(60'000, 'x'));
  std::string out;
  client.session.Send(out, 20'000);
  EXPECT_LT(out.size(), 20'000u + 16'384 + 9);
  EXPECT_EQ(client.left_to_send, client.session.Queued(stream));
  EXPECT_GT(client.left_to_send, 20'000u);
  EXPECT_TRUE(client.session.wants_to_send());
  EXPECT_TRUE(server.session.Receive(out).ok());
  client.session.Write(stream, std::string(1000, 'y'));
  Shuttle(client, server);
  EXPECT_EQ(server.data[stream].size(), 61'000u);
  EXPECT_EQ(server.data[stream].back(), 'y');
  EXPECT_EQ(client.left_to_send, 0u);
}

TEST(Http2Session, PingsAreAnswered) {
  End client(Side::kClient);
  End server(Side::kServer);
  client.session.Ping(77);
  Shuttle(client, server);
  EXPECT_TRUE(client.Told("pong 77"));
  EXPECT_EQ(server.frames_sent[6], 1);
}

}  // namespace
}  // namespace quire::http2
