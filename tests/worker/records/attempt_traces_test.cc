#include "worker/records/attempt_traces.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace quire {
namespace {

using trace::Span;

constexpr int64_t kZero = 1'700'000'000'000'000'000;
constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

AttemptRecord Record() {
  AttemptRecord record;
  record.router = RouterInstance(77);
  record.key = {RequestNumber(3), Attempt(2)};
  record.request_id = "r-1";
  record.tenant = "acme";
  record.adapter = "d1";
  record.traceparent = kParent;
  record.reason = EndReason::kStop;
  record.usage = {.prompt_tokens = 40,
                  .cached_tokens = 16,
                  .computed_tokens = 24,
                  .generated_tokens = 9,
                  .discarded_tokens = 1};
  record.constraint = {ConstraintKind::kJsonSchema, true, 0, 170};
  record.preemptions = 1;
  record.resumed_tokens = 4;
  record.accepted_us = 1000;
  record.queue_us = 200;
  record.prefill_us = 300;
  record.decode_us = 5000;
  record.prefill.Add(1200, 1350, 16);
  record.prefill.Add(1350, 1500, 8);
  record.prefill.Add(3000, 3100, 30);
  return record;
}

const TraceFacts kFacts{"demo", "worker-a", 5, kZero};

std::vector<Span> Spans(const AttemptRecord& record) {
  return SpansOf(record, trace::BeginTrace(trace::Sampler(), record.traceparent, 77, 3), kFacts);
}

const trace::AttributeValue* Of(const Span& span, const std::string& key) {
  for (const auto& [name, value] : span.attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

int64_t Number(const Span& span, const std::string& key) {
  const trace::AttributeValue* value = Of(span, key);
  return value == nullptr ? -1 : std::get<int64_t>(*value);
}

TEST(AttemptSpans, StandBelowTheRoutersAttempt) {
  const std::vector<Span> spans = Spans(Record());
  ASSERT_EQ(spans.size(), 7u);
  const Span& attempt = spans[0];
  EXPECT_EQ(attempt.name, "text_completion demo");
  EXPECT_EQ(attempt.kind, trace::SpanKind::kServer);
  EXPECT_EQ(trace::TraceIdHex(attempt.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(trace::SpanIdHex(attempt.parent), "00f067aa0ba902b7");
  EXPECT_EQ(attempt.start_unix_ns, kZero + 1'000'000);
  EXPECT_EQ(attempt.end_unix_ns, kZero + 6'500'000);
  EXPECT_EQ(Number(attempt, "gen_ai.usage.input_tokens"), 40);
  ASSERT_NE(Of(attempt, "quire.adapter"), nullptr);
  EXPECT_EQ(std::get<std::string>(*Of(attempt, "quire.adapter")), "d1");
  EXPECT_EQ(Number(attempt, "gen_ai.usage.output_tokens"), 8) << "less what was discarded";
  EXPECT_EQ(Number(attempt, "gen_ai.usage.cache_read.input_tokens"), 16);
  EXPECT_EQ(Number(attempt, "quire.preemptions"), 1);
  EXPECT_EQ(std::get<std::string>(*Of(attempt, "quire.constraint.kind")), "json_schema");
  EXPECT_TRUE(std::get<bool>(*Of(attempt, "quire.constraint.kept")));
  EXPECT_EQ(Number(attempt, "quire.constraint.compile_us"), 0);
  EXPECT_EQ(Number(attempt, "quire.constraint.mask_us"), 170);
  EXPECT_EQ(Number(attempt, "quire.tokens.resumed"), 4);
  EXPECT_EQ(Number(attempt, "quire.attempt"), 2);
  EXPECT_EQ(std::get<std::string>(*Of(attempt, "quire.attempt.end")), "stop");
  EXPECT_EQ(attempt.error, "");
  std::set<uint64_t> ids;
  for (const Span& span : spans) {
    ids.insert(span.id);
    EXPECT_EQ(span.trace, attempt.trace);
    EXPECT_LE(span.start_unix_ns, span.end_unix_ns);
  }
  EXPECT_EQ(ids.size(), spans.size());
}

TEST(AttemptSpans, ChunksStandBelowPrefillAndWhatIsDoneAgainBelowDecode) {
  const std::vector<Span> spans = Spans(Record());
  std::map<std::string, std::vector<const Span*>> named;
  for (const Span& span : spans) named[span.name].push_back(&span);
  const Span& prefill = *named.at("prefill")[0];
  const Span& decode = *named.at("decode")[0];
  EXPECT_EQ(named.at("queue")[0]->end_unix_ns, prefill.start_unix_ns);
  EXPECT_EQ(prefill.end_unix_ns, decode.start_unix_ns);
  ASSERT_EQ(named.at("prefill chunk").size(), 2u);
  EXPECT_EQ(named.at("prefill chunk")[0]->parent, prefill.id);
  EXPECT_EQ(Number(*named.at("prefill chunk")[0], "quire.chunk.tokens"), 16);
  ASSERT_EQ(named.at("recompute").size(), 1u);
  EXPECT_EQ(named.at("recompute")[0]->parent, decode.id);
}

TEST(AttemptSpans, OneThatNeverRanHasItsQueueAlone) {
  AttemptRecord record = Record();
  record.reason = EndReason::kDeadline;
  record.prefill = {};
  record.prefill_us = record.decode_us = 0;
  const std::vector<Span> spans = Spans(record);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].error, "deadline");
  EXPECT_EQ(spans[1].name, "queue");
}

TEST(PrefillChunks, TheLastPlaceTakesAllThatFollow) {
  PrefillChunks chunks;
  for (int i = 0; i < 100; ++i) chunks.Add(i * 10, i * 10 + 5, 2);
  const auto all = chunks.all();
  ASSERT_EQ(all.size(), PrefillChunks::kMost);
  EXPECT_EQ(all.back().steps, 100 - PrefillChunks::kMost + 1);
  EXPECT_EQ(all.back().start_us, 150);
  EXPECT_EQ(all.back().end_us, 995);
  uint32_t tokens = 0;
  for (const PrefillChunk& chunk : all) tokens += chunk.tokens;
  EXPECT_EQ(tokens, 200u);
}

// Keeps what was logged.
class Lines final : public Logger {
 public:
  explicit Lines(LogLevel level) : Logger(level) {}
  std::vector<std::string> lines;

 private:
  void Write(LogLevel level, std::string_view message, std::span<const LogField> fields) override {
    lines.push_back(FormatJsonLine(0, level, message, fields));
  }
};

TEST(AttemptTraces, ALineNamesRequestAndTrace) {
  Lines quiet(LogLevel::kInfo);
  LogAttempt(Record(), quiet);
  EXPECT_TRUE(quiet.lines.empty()) << "what ended well is for who debugs";
  Lines all(LogLevel::kDebug);
  LogAttempt(Record(), all);
  ASSERT_EQ(all.lines.size(), 1u);
  EXPECT_NE(all.lines[0].find("\"request_id\":\"r-1\""), std::string::npos) << all.lines[0];
  EXPECT_NE(all.lines[0].find("\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\""),
            std::string::npos)
      << all.lines[0];
  AttemptRecord failed = Record();
  failed.reason = EndReason::kFailed;
  LogAttempt(failed, quiet);
  ASSERT_EQ(quiet.lines.size(), 1u);
  EXPECT_NE(quiet.lines[0].find("warning"), std::string::npos);
}

TEST(AttemptSpans, ARefusalIsOneSpanOfItsOwn) {
  const Refused refused{.key = {RequestNumber(3), Attempt(2)},
                        .code = RefusalCode::kQueueFull,
                        .field = "",
                        .message = "64 requests are waiting",
                        .traceparent = kParent,
                        .tracestate = "a=b",
                        .request_id = "r-9"};
  const trace::RequestTrace trace =
      trace::BeginTrace(trace::Sampler(), refused.traceparent, 77, 3, refused.tracestate);
  const Span span = SpanOf(refused, trace, kFacts, {RouterInstance(77), 2000});
  EXPECT_EQ(span.id, Spans(Record())[0].id) << "the attempt's";
  EXPECT_EQ(trace::SpanIdHex(span.parent), "00f067aa0ba902b7");
  EXPECT_EQ(span.state, "a=b");
  EXPECT_EQ(span.start_unix_ns, kZero + 2'000'000);
  EXPECT_EQ(span.end_unix_ns, span.start_unix_ns);
  EXPECT_EQ(span.error, "queue_full");
  EXPECT_EQ(std::get<std::string>(*Of(span, "quire.attempt.end")), "refused");
  EXPECT_EQ(std::get<std::string>(*Of(span, "error.type")), "queue_full");
  EXPECT_EQ(std::get<std::string>(*Of(span, "quire.request_id")), "r-9");
  EXPECT_EQ(Number(span, "quire.attempt"), 2);
  EXPECT_EQ(Of(span, "gen_ai.usage.input_tokens"), nullptr) << "nothing was used";
  Lines all(LogLevel::kDebug);
  AttemptTraces(nullptr, trace::Sampler(), all).Write(refused, {RouterInstance(77), 2000});
  ASSERT_EQ(all.lines.size(), 1u);
  EXPECT_NE(all.lines[0].find("\"request_id\":\"r-9\""), std::string::npos) << all.lines[0];
  EXPECT_NE(all.lines[0].find("\"code\":\"queue_full\""), std::string::npos) << all.lines[0];
  EXPECT_EQ(all.lines[0].find("64 requests"), std::string::npos) << "messages may quote a prompt";
}

TEST(AttemptTraces, TheRouterDecidesAndWithoutAWordOfItTheSampler) {
  Metrics metrics;
  NullLogger log;
  const trace::TraceMetrics counters(metrics, "test");
  trace::TraceSettings settings;
  settings.url = "http://c/v1/traces";
  {
    trace::Exporter exporter(
        settings, [](const std::string&, const std::atomic<bool>&) { return absl::OkStatus(); },
        counters, log);
    AttemptTraces traces(&exporter, trace::Sampler(), log);
    traces.Start(kFacts);
    AttemptRecord record = Record();
    traces.Write(record);
    Refused refused;
    refused.key = record.key;
    refused.code = RefusalCode::kDraining;
    refused.traceparent = kParent;
    traces.Write(refused, {record.router, 5});
    record.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    traces.Write(record);
    record.traceparent = "";
    traces.Write(record);
    AttemptTraces(nullptr, trace::Sampler(), log).Write(record);
  }
  EXPECT_EQ(counters.exported.value(), 15u) << "two of them, seven spans each, and a refusal";
}

}  // namespace
}  // namespace quire
