#include "common/grpc/http2_guard.h"

#include <gtest/gtest.h>

#include <string>

#include "router/core/edge_metrics.h"

namespace quire {
namespace {

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9
};

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, size_t length) {
  std::string out;
  out += static_cast<char>(length >> 16);
  out += static_cast<char>(length >> 8);
  out += static_cast<char>(length);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(stream >> shift);
  return out + std::string(length, 'p');
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

struct Flood {
  const char* verdict;
  std::string frame;
  RateLimit GuardLimits::*limit;
};

std::vector<Flood> Floods() {
  return {
      {"resets", Frame(kReset, 0, 1, 4), &GuardLimits::resets},
      {"pings", Frame(kPing, 0, 0, 8), &GuardLimits::pings},
      {"settings", Frame(kSettings, 0, 0, 6), &GuardLimits::settings},
      {"window_updates", Frame(kWindowUpdate, 0, 0, 4), &GuardLimits::window_updates},
      {"new_streams", Frame(kHeaders, 4, 1, 0), &GuardLimits::new_streams},
      {"empty_data", Frame(kData, 0, 1, 0), &GuardLimits::empty_data},
      {"other_frames", Frame(kPriority, 0, 1, 5), &GuardLimits::other_frames},
      {"other_frames", Frame(0xEE, 0, 1, 0), &GuardLimits::other_frames},
  };
}

TEST(Http2Guard, BurstAtTheLimitPassesAndOneMoreDoesNot) {
  for (const Flood& flood : Floods()) {
    GuardLimits limits;
    limits.*flood.limit = {1, 10};
    Http2Guard guard(limits, 0);
    EXPECT_EQ(guard.Inspect(kPreface + Repeat(flood.frame, 10), 0), nullptr) << flood.verdict;
    EXPECT_STREQ(guard.Inspect(flood.frame, 0), flood.verdict);
    // Final, also when time has refilled the bucket.
    EXPECT_STREQ(guard.Inspect(Frame(kData, 0, 1, 1), 100 * kMicrosPerSecond), flood.verdict);
  }
}

TEST(Http2Guard, RatesRefill) {
  for (const Flood& flood : Floods()) {
    GuardLimits limits;
    limits.*flood.limit = {10, 10};
    Http2Guard guard(limits, 0);
    Micros now = 0;
    ASSERT_EQ(guard.Inspect(kPreface, now), nullptr);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(guard.Inspect(Repeat(flood.frame, 10), now), nullptr) << flood.verdict;
      now += kMicrosPerSecond;
    }
    EXPECT_NE(guard.Inspect(Repeat(flood.frame, 21), now), nullptr);
  }
}

// A Go client pings for each DATA frame that finds no PING of its under way: never more often than
// it is sent something, and as fast as that.
TEST(Http2Guard, PingsThatAnswerWhatWasSentPassAndThoseForNothingAreHeldToTheRate) {
  GuardLimits limits;
  limits.pings = {1, 5};
  const std::string ping = Frame(kPing, 0, 0, 8);
  const Http2Frame frames[] = {{.length = 20, .type = kData},
                               {.length = 20, .type = kHeaders},
                               {.length = 8, .type = kPing}};
  for (const Http2Frame& sent : frames) {
    Http2Guard guard(limits, 0);
    ASSERT_EQ(guard.Inspect(kPreface, 0), nullptr);
    for (int i = 0; i < 1000; ++i) {
      guard.Sent(sent);
      ASSERT_EQ(guard.Inspect(ping, 0), nullptr) << i;
    }
    EXPECT_EQ(guard.Inspect(Repeat(ping, 5), 0), nullptr);
    EXPECT_STREQ(guard.Inspect(ping, 0), "pings");
  }
  // Neither acknowledgements nor what a client brings about by itself earn anything.
  Http2Guard guard(limits, 0);
  ASSERT_EQ(guard.Inspect(kPreface, 0), nullptr);
  guard.Sent({.length = 8, .type = kPing, .flags = Http2Frame::kAcknowledged});
  guard.Sent({.length = 0, .type = kSettings, .flags = Http2Frame::kAcknowledged});
  guard.Sent({.length = 4, .type = kWindowUpdate});
  guard.Sent({.length = 4, .type = kReset});
  EXPECT_EQ(guard.Inspect(Repeat(ping, 5), 0), nullptr);
  EXPECT_STREQ(guard.Inspect(ping, 0), "pings");
}

TEST(Http2Guard, EarnedPingsAreBounded) {
  GuardLimits limits;
  limits.pings = {1, 5};
  const std::string ping = Frame(kPing, 0, 0, 8);
  Http2Guard guard(limits, 0);
  ASSERT_EQ(guard.Inspect(kPreface, 0), nullptr);
  for (uint32_t i = 0; i < 2 * kMaxEarnedPings; ++i) guard.Sent({.length = 1, .type = kData});
  EXPECT_EQ(guard.Inspect(Repeat(ping, kMaxEarnedPings + 5), 0), nullptr);
  EXPECT_STREQ(guard.Inspect(ping, 0), "pings");
}

TEST(Http2Guard, HeaderBlocksAreBounded) {
  GuardLimits limits;
  limits.max_header_block_bytes = 1000;
  {
    Http2Guard guard(limits, 0);
    EXPECT_EQ(
        guard.Inspect(kPreface + Frame(kHeaders, 0, 1, 500) + Frame(kContinuation, 4, 1, 500), 0),
        nullptr);
    EXPECT_STREQ(guard.Inspect(Frame(kHeaders, 0, 3, 500) + Frame(kContinuation, 4, 3, 501), 0),
                 "header_block");
  }
  {
    limits.continuations = {1, 5};
    Http2Guard guard(limits, 0);
    EXPECT_EQ(
        guard.Inspect(
            kPreface + Frame(kHeaders, 0, 1, 1) + Repeat(Frame(kContinuation, 0, 1, 0), 5), 0),
        nullptr);
    EXPECT_STREQ(guard.Inspect(Frame(kContinuation, 0, 1, 0), 0), "continuations");
  }
  {
    limits.header_bytes = {1, 1000};
    Http2Guard guard(limits, 0);
    EXPECT_EQ(guard.Inspect(kPreface + Repeat(Frame(kHeaders, 4, 1, 500), 2), 0), nullptr);
    EXPECT_STREQ(guard.Inspect(Frame(kHeaders, 4, 1, 1), 0), "header_bytes");
  }
}

TEST(Http2Guard, WhatHeadersStandForIsBoundedByBlockAndByRate) {
  GuardLimits limits;
  limits.max_decoded_block_bytes = 1000;
  const std::string headers = Frame(kHeaders, 4, 1, 1);
  {
    Http2Guard guard(limits, 0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(guard.Inspect(i == 0 ? kPreface + headers : headers, 0), nullptr);
      EXPECT_EQ(guard.Decoded(600, 0), nullptr);
      EXPECT_EQ(guard.Decoded(400, 0), nullptr) << "each block has as much";
    }
    EXPECT_STREQ(guard.Decoded(1, 0), "decoded_header_block");
    EXPECT_STREQ(guard.Inspect(headers, 0), "decoded_header_block") << "it is final";
  }
  limits.decoded_header_bytes = {100, 2000};
  Http2Guard guard(limits, 0);
  ASSERT_EQ(guard.Inspect(kPreface, 0), nullptr);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(guard.Inspect(headers, 0), nullptr);
    EXPECT_EQ(guard.Decoded(1000, 0), nullptr);
  }
  ASSERT_EQ(guard.Inspect(headers, kMicrosPerSecond), nullptr);
  EXPECT_EQ(guard.Decoded(100, kMicrosPerSecond), nullptr) << "it refills";
  EXPECT_STREQ(guard.Decoded(1, kMicrosPerSecond), "decoded_header_bytes");
}

TEST(Http2Guard, ResetsThatTheClientBringsAboutCountLikeItsOwn) {
  GuardLimits limits;
  limits.resets = {1, 10};
  Http2Guard guard(limits, 0);
  ASSERT_EQ(guard.Inspect(kPreface + Repeat(Frame(kReset, 0, 1, 4), 4), 0), nullptr);
  for (int i = 0; i < 6; ++i) guard.SentReset(0);
  EXPECT_EQ(guard.Inspect(Frame(kData, 0, 1, 1), 0), nullptr);
  guard.SentReset(0);
  EXPECT_STREQ(guard.Inspect(Frame(kData, 0, 1, 1), 0), "resets");
}

TEST(Http2Guard, OrderOfFramesAndSizes) {
  const std::pair<std::string, const char*> cases[] = {
      {"PRI * HTTP/2.0\r\n\r\nXX", "preface"},
      {kPreface + Frame(kContinuation, 4, 1, 1), "stray_continuation"},
      {kPreface + Frame(kHeaders, 0, 1, 1) + Frame(kData, 0, 1, 1), "interrupted_headers"},
      {kPreface + std::string("\1\0\1\1\4\0\0\0\1", 9), "frame_size"},
  };
  for (const auto& [bytes, verdict] : cases) {
    Http2Guard guard({}, 0);
    EXPECT_STREQ(guard.Inspect(bytes, 0), verdict);
  }
}

TEST(Http2Guard, EveryLimitHasItsCounter) {
  Metrics metrics;
  const EdgeMetrics counters(metrics);
  for (const Flood& flood : Floods()) {
    EXPECT_TRUE(counters.http2_guard_closed.contains(flood.verdict)) << flood.verdict;
  }
  for (const char* verdict : {"continuations", "header_bytes", "header_block",
                              "decoded_header_bytes", "decoded_header_block", "frame_size",
                              "preface", "interrupted_headers", "stray_continuation"}) {
    EXPECT_TRUE(counters.http2_guard_closed.contains(verdict)) << verdict;
  }
  EXPECT_NE(metrics.Render().find("quire_router_http2_guard_closed_total{limit=\"resets\"} 0"),
            std::string::npos);
}

TEST(Http2Guard, AnySplitGivesTheSameVerdict) {
  GuardLimits limits;
  limits.pings = {1, 3};
  const std::string good = kPreface + Frame(kSettings, 0, 0, 12) + Frame(kHeaders, 4, 1, 40) +
                           Frame(kData, 1, 1, 70) + Repeat(Frame(kPing, 0, 0, 8), 3);
  const std::string bad = good + Frame(kPing, 0, 0, 8);
  for (size_t step = 1; step < bad.size(); ++step) {
    Http2Guard guard(limits, 0);
    const char* verdict = nullptr;
    for (size_t at = 0; at < bad.size(); at += step) {
      verdict = guard.Inspect(std::string_view(bad).substr(at, step), 0);
      if (at + step <= good.size()) {
        EXPECT_EQ(verdict, nullptr) << step;
      }
    }
    EXPECT_STREQ(verdict, "pings") << step;
  }
}

}  // namespace
}  // namespace quire
