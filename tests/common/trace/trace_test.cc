#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "common/trace/context.h"
#include "common/trace/exporter.h"
#include "common/trace/otlp.h"
#include "common/trace/settings.h"

namespace quire::trace {
namespace {

constexpr char kHeader[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, IsReadAndWrittenBack) {
  const auto context = ParseTraceparent(kHeader);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(TraceIdHex(context->trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(SpanIdHex(context->span), "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), kHeader);
  const std::string unsampled = std::string(kHeader).substr(0, 53) + "02";
  EXPECT_FALSE(ParseTraceparent(unsampled)->sampled) << "other flags say nothing of it";
  const std::string later = "cc" + std::string(kHeader).substr(2) + "-what-comes-later";
  EXPECT_TRUE(ParseTraceparent(later).has_value());
}

TEST(Traceparent, WhatIsNoneIsNone) {
  const std::string good = kHeader;
  std::vector<std::string> wrong = {"",
                                    "00",
                                    good.substr(0, 54),
                                    good + "x",
                                    good + "-00",
                                    "ff" + good.substr(2),
                                    "0g" + good.substr(2),
                                    "00-" + std::string(32, '0') + good.substr(35),
                                    good.substr(0, 36) + std::string(16, '0') + "-01"};
  std::string upper = good;
  upper[5] = 'F';
  wrong.push_back(upper);
  std::string dash = good;
  dash[35] = '_';
  wrong.push_back(dash);
  for (const std::string& header : wrong) EXPECT_FALSE(ParseTraceparent(header)) << header;
}

TEST(Tracestate, IsHandedOnAsItCame) {
  const std::string all = "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7,,1-a_*/@b=x y!~";
  EXPECT_EQ(KeepTracestate(all), all);
  EXPECT_EQ(KeepTracestate(""), "");
  EXPECT_EQ(KeepTracestate(" ,, "), "");
  for (const char* wrong :
       {"a", "=b", "a=", "A=b", "_a=b", "a=b=c", "a=b,c", "a=\x01", "a=\xc3\xa4", "a b=c"}) {
    EXPECT_EQ(KeepTracestate(wrong), "") << wrong;
  }
  EXPECT_EQ(KeepTracestate("a=" + std::string(256, 'b')).size(), 258u);
  EXPECT_EQ(KeepTracestate("a=" + std::string(257, 'b')), "");
  EXPECT_EQ(KeepTracestate(std::string(256, 'a') + "=b").size(), 258u);
  EXPECT_EQ(KeepTracestate(std::string(257, 'a') + "=b"), "");
}

TEST(Tracestate, IsBounded) {
  std::string many;
  for (int i = 0; i < 32; ++i) many += (i == 0 ? "k" : ",k") + std::to_string(i) + "=v";
  EXPECT_EQ(KeepTracestate(many), many);
  EXPECT_EQ(KeepTracestate(many + ",one=more"), "");
  // Of what is above the limit the long ones go first, the last of them before the others.
  const std::string small = "a=1", tall = "b=" + std::string(200, 'x'), also = "c=2";
  const std::string taller = "d=" + std::string(250, 'y'), wide = "e=" + std::string(100, 'z');
  EXPECT_EQ(KeepTracestate(small + "," + tall + "," + also + "," + taller + "," + wide),
            small + "," + tall + "," + also + "," + wide);
  std::string short_ones;
  for (int i = 0; i < 6; ++i) {
    short_ones += (i == 0 ? "" : ",") + std::string(1, static_cast<char>('a' + i)) + "=" +
                  std::string(98, 'v');
  }
  EXPECT_EQ(KeepTracestate(short_ones), short_ones.substr(0, 5 * 101 - 1)) << "then the last";
}

TEST(Tracestate, BelongsToItsTraceparent) {
  const Sampler sampler;
  EXPECT_EQ(BeginTrace(sampler, kHeader, 1, 2, "a=b").state, "a=b");
  EXPECT_EQ(BeginTrace(std::nullopt, kHeader, 1, 2, "a=b").state, "a=b");
  EXPECT_EQ(BeginTrace(sampler, "", 1, 2, "a=b").state, "");
}

TEST(Sampler, FollowsTheParentOrTheRatio) {
  Sampler sampler;
  TraceContext parent{{1, 2}, 3, false};
  EXPECT_TRUE(sampler.Samples({1, 2}, std::nullopt));
  EXPECT_FALSE(sampler.Samples({1, 2}, parent));
  sampler.follow_parent = false;
  EXPECT_TRUE(sampler.Samples({1, 2}, parent));
  sampler.ratio = 0;
  EXPECT_FALSE(sampler.Samples({1, 0}, std::nullopt));
  sampler.ratio = 0.25;
  int taken = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    taken += sampler.Samples(DerivedTraceId(7, i), std::nullopt) ? 1 : 0;
  }
  EXPECT_NEAR(taken, 2500, 250);
}

TEST(DerivedIds, AreNeverZeroAndDoNotMeet) {
  EXPECT_TRUE(DerivedTraceId(0, 0).valid());
  EXPECT_NE(DerivedTraceId(1, 1), DerivedTraceId(1, 2));
  EXPECT_NE(DerivedTraceId(1, 1), DerivedTraceId(2, 1));
  EXPECT_NE(DerivedSpanId(1, 1, 0), DerivedSpanId(1, 1, 1));
  EXPECT_EQ(DerivedSpanId(1, 1, 1), DerivedSpanId(1, 1, 1));
}

TEST(AttemptTraceparent, NamesTheAttemptsSpanWhereItIsRecorded) {
  const TraceContext request{{5, 6}, 7, true};
  const std::string sent = AttemptTraceparent(FormatTraceparent(request), 77, 3, 2);
  const std::optional<TraceContext> read = ParseTraceparent(sent);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->trace, request.trace);
  EXPECT_TRUE(read->sampled);
  EXPECT_EQ(read->span, RouterSpanId(77, 3, 2, 0));
  EXPECT_NE(read->span, RouterSpanId(77, 3, 1, 0)) << "each attempt has its own";
  const std::string unsampled = FormatTraceparent({{5, 6}, 7, false});
  EXPECT_EQ(AttemptTraceparent(unsampled, 77, 3, 2), unsampled);
  EXPECT_EQ(AttemptTraceparent("rubbish", 77, 3, 2), "rubbish");
  EXPECT_EQ(TraceIdOf(sent), "00000000000000050000000000000006");
  EXPECT_EQ(TraceIdOf("rubbish"), "");
  EXPECT_EQ(TraceResponse({}), "");
  EXPECT_EQ(TraceResponse({{5, 6}, 7, 9, true, ""}), FormatTraceparent(request));
}

TEST(SpanIds, OfRoutersAndWorkersDoNotMeet) {
  std::set<uint64_t> ids;
  for (uint64_t attempt = 0; attempt < 20; ++attempt) {
    for (uint64_t part = 0; part < 8; ++part) ids.insert(RouterSpanId(1, 2, attempt, part));
    for (uint64_t part = 0; part < 24; ++part) ids.insert(WorkerSpanId(1, 2, attempt, part));
  }
  EXPECT_EQ(ids.size(), 20u * 32);
}

TEST(TraceSettings, AreWhatTheSpecificationSays) {
  EXPECT_FALSE(TraceSettingsOf({}, "s").on) << "no endpoint was named";
  TraceSettings s = TraceSettingsOf({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
                                     {"OTEL_EXPORTER_OTLP_HEADERS", "a=b, key = x%20y ,,=z"},
                                     {"OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=p,service.name=r"},
                                     {"OTEL_TRACES_SAMPLER", "traceidratio"},
                                     {"OTEL_TRACES_SAMPLER_ARG", "0.5"},
                                     {"OTEL_BSP_MAX_QUEUE_SIZE", "10"},
                                     {"OTEL_EXPORTER_OTLP_TIMEOUT", "2500"}},
                                    "quire-router");
  EXPECT_TRUE(s.on);
  EXPECT_EQ(s.url, "http://c:4318/v1/traces");
  ASSERT_EQ(s.headers.size(), 2u);
  EXPECT_EQ(s.headers[1], (std::pair<std::string, std::string>{"key", "x y"}));
  EXPECT_EQ(s.sampler.ratio, 0.5);
  EXPECT_FALSE(s.sampler.follow_parent);
  EXPECT_EQ(s.max_queue, 10u);
  EXPECT_EQ(s.max_batch, 10u) << "no larger than the queue";
  EXPECT_EQ(s.timeout_ms, 2500);
  EXPECT_TRUE(s.warnings.empty());
  std::string service;
  for (const auto& [key, value] : s.resource) {
    if (key == "service.name") service = std::get<std::string>(value);
  }
  EXPECT_EQ(service, "r");
  const auto url = [](std::map<std::string, std::string> environment,
                      const std::string& flag = "") {
    return TraceSettingsOf(environment, "s", flag).url;
  };
  EXPECT_EQ(url({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/x"},
                 {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://d"}}),
            "http://c/x");
  EXPECT_EQ(url({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://d/"}}), "http://d/v1/traces");
  EXPECT_EQ(url({{"OTEL_TRACES_EXPORTER", "otlp"}}), "http://localhost:4318/v1/traces");
  EXPECT_TRUE(TraceSettingsOf({{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}}, "s", "http://c").gzip);
  EXPECT_EQ(TraceSettingsOf({{"OTEL_BSP_EXPORT_TIMEOUT", "700"}}, "s", "http://c").timeout_ms, 700);
  EXPECT_EQ(url({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/x"}}, "http://flag:4318"),
            "http://flag:4318/v1/traces");
}

TEST(TraceSettings, WhatIsWrongIsToldAndTheDefaultHolds) {
  const std::map<std::string, std::string> on = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}};
  const auto with = [&on](const std::string& name, const std::string& value) {
    auto environment = on;
    environment[name] = value;
    return TraceSettingsOf(environment, "s");
  };
  EXPECT_FALSE(with("OTEL_SDK_DISABLED", "TRUE").on);
  EXPECT_FALSE(with("OTEL_TRACES_EXPORTER", "none").on);
  EXPECT_TRUE(with("OTEL_TRACES_EXPORTER", "otlp").warnings.empty());
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"OTEL_TRACES_EXPORTER", "zipkin"},
                                                        {"OTEL_TRACES_SAMPLER", "jaeger_remote"},
                                                        {"OTEL_BSP_MAX_QUEUE_SIZE", "-1"},
                                                        {"OTEL_BSP_SCHEDULE_DELAY", "soon"},
                                                        {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                                                        {"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
                                                        {"OTEL_EXPORTER_OTLP_CLIENT_KEY", "k.pem"},
                                                        {"OTEL_PROPAGATORS", "b3"},
                                                        {"OTEL_SDK_DISABLED", "maybe"},
                                                        {"OTEL_BSP_EXPORT_TIMEOUT", "-5"},
                                                        {"OTEL_EXPORTER_OTLP_TIMEOUT", "0"}}) {
    const TraceSettings settings = with(name, value);
    EXPECT_TRUE(settings.on) << name;
    ASSERT_EQ(settings.warnings.size(), 1u) << name;
    EXPECT_NE(settings.warnings[0].find(name), std::string::npos) << settings.warnings[0];
  }
  EXPECT_EQ(with("OTEL_TRACES_EXPORTER", "otlp,console").warnings.size(), 1u);
  const TraceSettings console = TraceSettingsOf({{"OTEL_TRACES_EXPORTER", "console"}}, "s");
  EXPECT_FALSE(console.on) << "nothing names an endpoint";
  EXPECT_EQ(console.warnings.size(), 1u) << "and it is told all the same";
  auto ratio = on;
  ratio["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio";
  ratio["OTEL_TRACES_SAMPLER_ARG"] = "2";
  EXPECT_EQ(TraceSettingsOf(ratio, "s").sampler.ratio, 1);
  const TraceSettings wrong = TraceSettingsOf({{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"}}, "s");
  EXPECT_FALSE(wrong.on);
  EXPECT_EQ(wrong.warnings.size(), 1u);
  EXPECT_TRUE(with("OTEL_TRACES_SAMPLER", "always_off").sampler.ratio == 0);
}

TEST(Otlp, IsTheMessageByteForByte) {
  Span span;
  span.trace = {0x0102030405060708, 0x090a0b0c0d0e0f10};
  span.id = 0x1112131415161718;
  span.name = "a";
  span.start_unix_ns = 1;
  span.end_unix_ns = 2;
  span.attributes = {{"k", int64_t{300}}};
  const std::string message = EncodeOtlp({{"s", std::string("v")}}, std::span(&span, 1));
  const std::string expected_span =
      std::string("\x0a\x10\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", 18) +
      std::string("\x12\x08\x11\x12\x13\x14\x15\x16\x17\x18", 10) + "\x2a\x01" + "a" +
      std::string("\x30\x01\x39\x01\0\0\0\0\0\0\0\x41\x02\0\0\0\0\0\0\0", 20) +
      std::string("\x4a\x08\x0a\x01k\x12\x03\x18\xac\x02", 10) +
      std::string("\x85\x01\x01\0\0\0", 6);
  EXPECT_NE(message.find(expected_span), std::string::npos);
  EXPECT_EQ(message.substr(0, 1), "\x0a");
  EXPECT_NE(message.find("quire"), std::string::npos) << "the scope";
}

// What the exporter sends, and how it is answered.
class Collector {
 public:
  SendFunction Function() {
    return [this](const std::string& message, const std::atomic<bool>&) -> absl::Status {
      std::unique_lock<std::mutex> lock(mutex_);
      ++sent_;
      bytes_ += message.size();
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_; });
      return down_ ? absl::UnavailableError("down") : absl::OkStatus();
    };
  }
  void Set(bool held, bool down) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    down_ = down;
    changed_.notify_all();
  }
  void AwaitSent(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return sent_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int sent_ = 0;
  size_t bytes_ = 0;
  bool held_ = false, down_ = false;
};

TraceSettings Small() {
  TraceSettings settings;
  settings.on = true;
  settings.url = "http://c:4318/v1/traces";
  settings.max_queue = 4;
  settings.max_batch = 2;
  settings.delay_ms = 600'000;  // a full batch or the end sends
  return settings;
}

TEST(Exporter, SendsFullBatchesAndWhatIsLeftAtTheEnd) {
  Metrics metrics;
  NullLogger log;
  const TraceMetrics counters(metrics, "test");
  Collector collector;
  {
    Exporter exporter(Small(), collector.Function(), counters, log);
    exporter.Offer(std::vector<Span>(2));
    collector.AwaitSent(1);
    exporter.Offer(std::vector<Span>(1));
  }
  EXPECT_EQ(counters.exported.value(), 3u);
  EXPECT_EQ(counters.dropped.value(), 0u);
}

TEST(Exporter, AFullQueueDropsAndNobodyWaits) {
  Metrics metrics;
  NullLogger log;
  const TraceMetrics counters(metrics, "test");
  Collector collector;
  collector.Set(/*held=*/true, /*down=*/false);
  {
    Exporter exporter(Small(), collector.Function(), counters, log);
    exporter.Offer(std::vector<Span>(2));
    collector.AwaitSent(1);  // the collector has it and does not answer
    exporter.Offer(std::vector<Span>(100));
    EXPECT_EQ(counters.dropped.value(), 96u) << "four wait";
    collector.Set(false, false);
  }
  EXPECT_EQ(counters.exported.value(), 6u);
}

TEST(Exporter, ACollectorThatIsDownCostsItsSpansAndNothingElse) {
  Metrics metrics;
  NullLogger log;
  const TraceMetrics counters(metrics, "test");
  Collector collector;
  collector.Set(false, /*down=*/true);
  {
    Exporter exporter(Small(), collector.Function(), counters, log);
    exporter.Offer(std::vector<Span>(2));
    collector.AwaitSent(1);
    exporter.Offer(std::vector<Span>(2));
  }
  EXPECT_EQ(counters.exported.value(), 0u);
  EXPECT_EQ(counters.dropped.value(), 4u);
  EXPECT_GE(counters.failures.value(), 2u);
}

TEST(Exporter, ACollectorThatHangsKeepsNobodyFromLeaving) {
  Metrics metrics;
  NullLogger log;
  const TraceMetrics counters(metrics, "test");
  bool was_given_up = false;
  {
    Exporter exporter(
        Small(),
        [&](const std::string&, const std::atomic<bool>& given_up) -> absl::Status {
          while (!given_up) std::this_thread::yield();
          was_given_up = true;
          return absl::CancelledError("given up");
        },
        counters, log);
    exporter.Offer(std::vector<Span>(2));
  }
  EXPECT_TRUE(was_given_up);
  EXPECT_EQ(counters.dropped.value(), 2u);
}

// As a resolver of names does that nobody answers: it hears nothing of being given up.
TEST(Exporter, ASenderThatIsHeldIsLeftAloneAndHasNoWordAnyMore) {
  Metrics metrics;
  NullLogger log;
  const TraceMetrics counters(metrics, "test");
  struct Held {
    std::promise<void> begun, free;
    std::shared_future<void> freed = free.get_future().share();
    std::promise<void> gone;
    ~Held() { gone.set_value(); }
  };
  auto held = std::make_shared<Held>();
  std::future<void> gone = held->gone.get_future();
  TraceSettings settings = Small();
  settings.last_exports_ms = 20;
  auto exporter = std::make_unique<Exporter>(
      settings,
      [held](const std::string&, const std::atomic<bool>&) {
        held->begun.set_value();
        held->freed.wait();
        return absl::OkStatus();
      },
      counters, log);
  exporter->Offer(std::vector<Span>(2));
  held->begun.get_future().wait();
  std::future<void> ended = std::async(std::launch::async, [&] { exporter.reset(); });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  held->free.set_value();
  held.reset();
  gone.wait();  // the thread has let go of all that it had
  EXPECT_EQ(counters.exported.value(), 0u);
}

TEST(Traces, WhatIsLoggedOfACollectorHasNoSecretInIt) {
  const std::pair<const char*, const char*> shown[] = {
      {"https://collector:4318/v1/traces?api-key=secret", "https://collector:4318"},
      {"https://user:secret@collector/secret", "https://collector"},
      {"http://[::1]:4318#secret", "http://[::1]:4318"},
      {"http://collector?secret@x", "http://collector"},
      {"user:secret@collector:4317/x", "collector:4317"},
      {"http://c", "http://c"},
      {"", ""},
  };
  for (const auto& [url, wanted] : shown) EXPECT_EQ(ShownUrl(url), wanted) << url;
  const TraceSettings settings =
      TraceSettingsOf({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@c:4317/otlp"}}, "test");
  EXPECT_TRUE(settings.on);
  EXPECT_EQ(settings.url, "http://c:4317/otlp/v1/traces");
  ASSERT_EQ(settings.warnings.size(), 2u) << "of the credentials, and of the port";
  for (const std::string& line : settings.warnings) {
    EXPECT_EQ(line.find("secret"), std::string::npos) << line;
  }
  for (const char* wrong : {"ftp://user:secret@c/x", "secret"}) {
    const TraceSettings off = TraceSettingsOf({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", wrong}}, "t");
    EXPECT_FALSE(off.on);
  }
}

TEST(Otlp, LinksStandInTheirField) {
  Span span;
  span.links = {{{1, 2}, 3, {}}};
  const std::string link = std::string("\x6a\x1c\x0a\x10", 4) + std::string(7, '\0') + "\x01" +
                           std::string(7, '\0') + "\x02\x12\x08" + std::string(7, '\0') + "\x03";
  EXPECT_NE(EncodeOtlp({}, std::span(&span, 1)).find(link), std::string::npos);
}

TEST(HttpSender, ACollectorThatSaysNothingIsLeftInTime) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 4), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  TraceSettings settings = Small();
  settings.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/v1/traces";
  settings.timeout_ms = 50;
  std::atomic<bool> given_up = false;
  EXPECT_EQ(HttpSender(settings)("x", given_up).code(), absl::StatusCode::kDeadlineExceeded);
  close(fd);
  EXPECT_FALSE(HttpSender(settings)("x", given_up).ok()) << "nobody listens";
}

}  // namespace
}  // namespace quire::trace
