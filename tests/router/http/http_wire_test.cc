// What a client may get wrong, or do on purpose, on the wire.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "router/core/request_limits.h"
#include "router/http/http_session_asio.h"
#include "tests/router/support/busy_pool.h"
#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

TEST(HttpWire, KeepAliveAndPipelining) {
  EdgeHarness edge;
  RawClient client = edge.Connect();
  std::string burst;
  for (int i = 0; i < 50; ++i) {
    burst += edge.Get("/version", "X-Request-Id: r" + std::to_string(i) + "\r\n");
    burst += edge.Post("/v1/completions", R"({"prompt":"x","max_tokens":1})",
                       "X-Request-Id: p" + std::to_string(i) + "\r\n");
  }
  client.Send(burst);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.ReadResponse().headers["x-request-id"], "r" + std::to_string(i));
    const RawResponse r = client.ReadResponse();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.headers.at("x-request-id"), "p" + std::to_string(i));
  }
}

TEST(HttpWire, PipeliningPastTheReadAheadIsHeldBackNotLost) {
  HttpLimits limits;
  limits.max_pipelined_bytes = 1000;
  EdgeHarness edge(limits);
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient client = edge.Connect();
  client.Send(edge.Post("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  std::string burst;
  for (int i = 0; i < 500; ++i) burst += edge.Get("/livez");
  client.Send(burst);
  edge.OnLoop([&] {
    auto live = edge.pipeline.live.begin()->second;
    edge.pipeline.live.clear();
    live.sink->OnError({ApiCode::kInternal, "x", "", 0});
  });
  EXPECT_EQ(client.ReadResponse().status, 500);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(client.ReadResponse().status, 200);
}

TEST(HttpWire, ByteByByte) {
  EdgeHarness edge;
  RawClient client = edge.Connect();
  for (const char c : edge.Post("/v1/completions", R"({"prompt":"x","max_tokens":1})")) {
    ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  }
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST(HttpWire, Http10) {
  EdgeHarness edge;
  RawClient client = edge.Connect();
  const std::string body = R"({"prompt":"x","stream":true,"max_tokens":1})";
  client.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  const RawResponse r = client.ReadResponse();
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(r.headers.at("connection"), "close");
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
  RawClient keep = edge.Connect();
  for (int i = 0; i < 2; ++i) {
    keep.Send("GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(keep.ReadResponse().status, 200);
  }
}

TEST(HttpWire, ChunkedBodiesAndExpect) {
  EdgeHarness edge;
  RawClient client = edge.Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("5;ext=1\r\n{\"pro\r\n13\r\nmpt\":\"x\",\"stop\":\"\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 200);
  client.Send(edge.Get("/livez"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

struct WireCase {
  std::string name;
  std::string bytes;
  int status;
};

TEST(HttpWire, BadRequestsAreRefusedAndTheConnectionEnds) {
  HttpLimits limits;
  limits.max_header_bytes = 4096;
  limits.max_body_bytes = 1000;
  EdgeHarness edge(limits);
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n";
  const WireCase cases[] = {
      {"no http", "hello\r\n\r\n", 400},
      {"bad version", "GET / HTTP/3.0\r\n\r\n", 505},
      {"no host", "GET /livez HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"bad header", "GET /livez HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400},
      {"bad target", "GET %zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"bad percent", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"length and chunked",
       post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunked and length",
       post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {"two lengths", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {"negative length", post + "Content-Length: -1\r\n\r\n", 400},
      {"huge length", post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"gzip", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"identity", post + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 501},
      {"compressed body", post + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"bad chunk size", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"chunk size overflow", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
       400},
      {"body over its limit, said so", post + "Content-Length: 1001\r\n\r\n", 413},
      {"body over its limit, chunked",
       post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'a') +
           "\r\n0\r\n\r\n",
       413},
      {"endless chunk extension",
       post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(200'000, 'e'), 431},
      {"headers over their limit",
       "GET /livez HTTP/1.1\r\nHost: x\r\nA: " + std::string(5000, 'a') + "\r\n\r\n", 431},
      {"endless target", "GET /" + std::string(100'000, 'a'), 431},
      {"expect", post + "Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", 417},
  };
  for (const WireCase& bad : cases) {
    RawClient client = edge.Connect();
    client.Send(bad.bytes);
    RawResponse r = client.ReadResponse();
    EXPECT_EQ(r.status, bad.status) << bad.name << ": " << r.body;
    EXPECT_NE(r.body.find("{\"error\":{\"message\":"), std::string::npos) << bad.name;
    if (bad.name == "bad target" || bad.name == "bad percent") continue;  // whole requests
    EXPECT_EQ(r.headers["connection"], "close") << bad.name;
    client.HalfClose();
    EXPECT_EQ(client.ReadToEnd(), "") << bad.name;
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
  EXPECT_EQ(edge.Ask(edge.Get("/livez")).status, 200);
}

TEST(HttpWire, HeadersAndBodiesAtTheirLimitsAreServedAndOneByteMoreIsCounted) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  limits.max_header_bytes = 2000;
  EdgeHarness edge(limits);
  std::string body = R"({"prompt":")";
  body += std::string(1000 - body.size() - 2, 'a') + "\"}";
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", body)).status, 200);
  EXPECT_EQ(edge.counters.http_bodies_too_large.value(), 0u);
  EXPECT_EQ(edge.Ask(edge.Post("/v1/completions", body + " ")).status, 413);
  EXPECT_EQ(edge.counters.http_bodies_too_large.value(), 1u);

  const std::string begin = "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ";
  const std::string end = "\r\n\r\n";
  const std::string filling(limits.max_header_bytes - begin.size() - end.size(), 'a');
  EXPECT_EQ(edge.Ask(begin + filling + end).status, 200);
  EXPECT_EQ(edge.counters.http_headers_too_large.value(), 0u);
  EXPECT_EQ(edge.Ask(begin + filling + "a" + end).status, 431);
  EXPECT_EQ(edge.counters.http_headers_too_large.value(), 1u);
  for (const size_t extra : {0u, 1u}) {  // byte by byte
    RawClient client = edge.Connect();
    for (const char c : begin + filling + std::string(extra, 'a') + end) client.Send({&c, 1});
    EXPECT_EQ(client.ReadResponse().status, extra == 0 ? 200 : 431);
  }
}

// Of all clients together, and until a body is parsed; one whose client has left is not parsed.
TEST(HttpWire, BodiesThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused) {
  HttpLimits limits;
  limits.background_parse_bytes = 100;
  limits.max_total_body_bytes = 2000;
  EdgeHarness edge(limits);
  LimitCounters counters(edge.metrics);
  edge.OnLoop([&] { edge.services.request_limits.counters = &counters; });
  const auto post = [&](size_t bytes, std::string body = R"({"max_tokens":1,"prompt":")") {
    body += std::string(bytes - body.size() - 2, 'a') + "\"}";
    return edge.Post("/v1/completions", body);
  };
  const auto counted = [&](size_t bytes) {
    return edge.Eventually([&] { return edge.services.bodies->bytes() == bytes; });
  };
  BusyPool busy(edge);
  RawClient first = edge.Connect();
  first.Send(post(1000));
  RawClient leaves = edge.Connect();
  leaves.Send(post(500, R"({"n":1000,"prompt":")"));
  ASSERT_TRUE(counted(1500));
  leaves.Close();
  ASSERT_TRUE(edge.Eventually([&] { return edge.http->connections() == 1; }));
  const RawResponse refused = edge.Ask(post(501));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(edge.counters.bodies_refused.value(), 1u);
  RawClient last = edge.Connect();
  last.Send(post(500));
  ASSERT_TRUE(counted(2000)) << "the one that left is still in memory";
  EXPECT_EQ(edge.Ask(post(100)).status, 200) << "it waits for nothing";
  busy.GoOn();
  EXPECT_EQ(first.ReadResponse().status, 200);
  EXPECT_EQ(last.ReadResponse().status, 200);
  EXPECT_TRUE(counted(0));
  EXPECT_EQ(edge.counters.bodies_refused.value(), 1u);
  EXPECT_EQ(counters.choices.value(), 0u) << "nobody is there to be told of its n";
}

TEST(HttpWire, ChunkFloodOfTinyChunksIsBounded) {
  HttpLimits limits;
  limits.max_body_bytes = 100'000;
  EdgeHarness edge(limits);
  RawClient client = edge.Connect();
  client.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string flood;
  for (int i = 0; i < 100; ++i) flood += "1;" + std::string(1000, 'e') + "\r\na\r\n";
  // 1 byte of body for 1,000 bytes of chunk header: refused long before the body's limit.
  for (int i = 0; i < 100 && client.Send(flood); ++i) {
  }
  const RawResponse r = client.ReadResponse();
  EXPECT_EQ(r.status, 413);
}

TEST(HttpWire, SlowHeadersAndBodiesTimeOut) {
  HttpLimits limits;
  limits.header_timeout = 1000;  // microseconds
  limits.body_timeout = 1000;
  EdgeHarness edge(limits);
  RawClient headers = edge.Connect();
  headers.Send("GET /livez HTT");
  EXPECT_EQ(headers.ReadResponse().status, 408);
  limits.header_timeout = 60 * kMicrosPerSecond;
  EdgeHarness patient(limits);
  RawClient body = patient.Connect();
  body.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.ReadResponse().status, 408);
  EXPECT_EQ(patient.counters.http_request_timeouts.value(), 1u);
}

TEST(HttpWire, IdleConnectionsAreClosed) {
  HttpLimits limits;
  limits.idle_timeout = 1000;  // microseconds
  EdgeHarness edge(limits);
  RawClient client = edge.Connect();
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
  EXPECT_EQ(edge.counters.http_idle_closed.value(), 1u);
  limits.idle_timeout = 60 * kMicrosPerSecond;
  EdgeHarness patient(limits);
  RawClient again = patient.Connect();
  again.Send(patient.Get("/version"));
  EXPECT_EQ(again.ReadResponse().status, 200);
  again.Send(patient.Get("/version"));
  EXPECT_EQ(again.ReadResponse().status, 200) << "open since the first one, and within the limit";
  EXPECT_EQ(patient.counters.http_idle_closed.value(), 0u);
}

TEST(HttpWire, WhatComesAfterTheEndIsReadUpToItsLimit) {
  HttpLimits limits;
  limits.linger_timeout = 600 * kMicrosPerSecond;
  EdgeHarness edge(limits);
  const auto connections = [&] {
    size_t open = 0;
    edge.OnLoop([&] { open = edge.http->connections(); });
    return open;
  };
  RawClient client = edge.Connect();
  client.Send("no request\r\n\r\n");
  EXPECT_NE(client.ReadToEnd().find(" 400 "), std::string::npos);
  EXPECT_TRUE(client.Send(std::string(kMaxLingerBytes, 'x')));
  EXPECT_TRUE(edge.Eventually([&] {
    int unread = 1;
    return ::ioctl(client.fd(), SIOCOUTQ, &unread) == 0 && unread == 0;
  }));
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(edge.counters.http_lingers_cut.value(), 0u);
  EXPECT_TRUE(client.Send("x"));
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
  EXPECT_EQ(edge.counters.http_lingers_cut.value(), 1u);
}

TEST(HttpWire, EarlyEndsLeaveNothingBehind) {
  EdgeHarness edge;
  const std::string request = edge.Post("/v1/completions", R"({"prompt":"x"})");
  for (size_t cut = 0; cut < request.size(); cut += 7) {
    RawClient client = edge.Connect();
    client.Send(request.substr(0, cut));
    client.Close();
  }
  EXPECT_TRUE(edge.Eventually([&] { return edge.http->connections() == 0; }));
  edge.OnLoop([&] { EXPECT_TRUE(edge.pipeline.live.empty()); });
}

// At the end of a drain: those that have begun in an event, the others by their status.
TEST(HttpWire, RequestsThatAreEndedTogetherHearItEach) {
  EdgeHarness edge;
  edge.OnLoop([&] { edge.pipeline.mode = FakePipeline::Mode::kManual; });
  RawClient begun = edge.Connect();
  RawClient waits = edge.Connect();
  begun.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 1; }));
  edge.OnLoop([&] {
    auto& live = edge.pipeline.live.begin()->second;
    live.sink->OnStarted(FakePipeline::StartedFor(live.request));
    live.sink->OnDelta(FakePipeline::Token(0, 0));
  });
  waits.Send(edge.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(edge.Eventually([&] { return edge.pipeline.live.size() == 2; }));
  edge.OnLoop([&] {
    edge.pipeline.EndAll({ApiCode::kUnavailable, "this router is shutting down", "", 1000});
  });
  const std::string told = begun.ReadUntil("}}\n\n");
  EXPECT_NE(told.find("tok0"), std::string::npos);
  EXPECT_NE(told.find(R"("resume":{"seed":42)"), std::string::npos) << told;
  EXPECT_EQ(waits.ReadResponse().status, 503);
}

TEST(HttpWire, HalfCloseAfterAWholeAnswerGetsTheAnswer) {
  EdgeHarness edge;
  RawClient client = edge.Connect();
  client.Send(edge.Get("/version"));
  client.HalfClose();
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST(HttpWire, UnusableRequestIdsAreReplaced) {
  EdgeHarness edge;
  for (const std::string& id :
       {std::string(129, 'a'), std::string("with space"), std::string("q\"uote")}) {
    const RawResponse r = edge.Ask(edge.Get("/livez", "X-Request-Id: " + id + "\r\n"));
    EXPECT_EQ(r.headers.at("x-request-id").size(), 32u);
  }
}

}  // namespace
}  // namespace quire
