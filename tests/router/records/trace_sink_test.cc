#include "router/records/trace_sink.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace quire {
namespace {

using trace::Span;

constexpr int64_t kZero = 1'700'000'000'000'000'000;

AttemptReport Attempt1(AttemptEnd end) {
  AttemptReport attempt;
  attempt.attempt = Attempt(1);
  attempt.worker_id = "worker-a";
  attempt.target = "10.0.0.1:9000";
  attempt.end = end;
  attempt.sent_at = 1500;
  attempt.admitted_at = 1600;
  attempt.first_output_at = 1900;
  attempt.over_at = 4000;
  attempt.accepted_tokens = 5;
  attempt.cached_tokens = 16;
  attempt.route = {"prefix", 3, 16};
  return attempt;
}

RequestRecord Record() {
  RequestRecord record;
  record.router = RouterInstance(77);
  record.request = RequestNumber(3);
  record.request_id = "r-1";
  record.tenant = "acme";
  record.model = "demo";
  record.model_id = "abc";
  record.operation = "chat";
  record.streaming = true;
  record.sampled_with.choices = 2;
  record.sampled_with.max_tokens = 32;
  record.sampled_with.temperature = 0.5f;
  record.sampled_with.seed = 11;
  record.end = RequestEnd::kFinished;
  record.finish_reasons = {"stop"};
  record.prompt_tokens = 40;
  record.cached_tokens = 16;
  record.delivered_tokens = 9;
  record.arrived_at = 1000;
  record.queued_us = 200;
  record.first_token_us = 900;
  record.total_us = 9000;
  record.trace = trace::BeginTrace(std::nullopt, "", 77, 3);
  record.attempts = {Attempt1(AttemptEnd::kFinished)};
  record.attempts_total = 1;
  return record;
}

std::map<std::string, Span> ByName(const std::vector<Span>& spans) {
  std::map<std::string, Span> by_name;
  for (const Span& span : spans) by_name[span.name] = span;
  return by_name;
}

const trace::AttributeValue* Of(const Span& span, const std::string& key) {
  for (const auto& [name, value] : span.attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

TEST(TraceSpans, TellTheWayOfARequest) {
  const RequestRecord record = Record();
  const std::vector<Span> list = SpansOf(record, kZero);
  const std::map<std::string, Span> spans = ByName(list);
  ASSERT_EQ(spans.size(), 8u);
  const Span& root = spans.at("chat demo");
  EXPECT_EQ(root.kind, trace::SpanKind::kServer);
  EXPECT_EQ(root.id, record.trace.span);
  EXPECT_EQ(root.start_unix_ns, kZero + 1'000'000);
  EXPECT_EQ(root.end_unix_ns, kZero + 10'000'000);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.usage.input_tokens")), 40);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.usage.output_tokens")), 9);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.usage.cache_read.input_tokens")), 16);
  EXPECT_EQ(std::get<std::string>(*Of(root, "gen_ai.operation.name")), "chat");
  EXPECT_EQ(std::get<std::vector<std::string>>(*Of(root, "gen_ai.response.finish_reasons")),
            std::vector<std::string>{"stop"});
  EXPECT_EQ(Of(root, "error.type"), nullptr);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.request.max_tokens")), 32);
  EXPECT_EQ(std::get<double>(*Of(root, "gen_ai.request.temperature")), 0.5);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.request.seed")), 11);
  EXPECT_EQ(std::get<int64_t>(*Of(root, "gen_ai.request.choice.count")), 2);
  EXPECT_EQ(spans.at("admission").end_unix_ns, spans.at("queue").start_unix_ns);
  EXPECT_EQ(spans.at("queue").end_unix_ns, spans.at("attempt").start_unix_ns);
  EXPECT_EQ(spans.at("queue").end_unix_ns - spans.at("queue").start_unix_ns, 200'000);
  const Span& attempt = spans.at("attempt");
  EXPECT_EQ(attempt.parent, root.id);
  const Span& routing = spans.at("routing decision");
  EXPECT_EQ(routing.start_unix_ns, attempt.start_unix_ns);
  EXPECT_EQ(routing.end_unix_ns, attempt.start_unix_ns);
  EXPECT_EQ(std::get<std::string>(*Of(routing, "quire.routing.reason")), "prefix");
  EXPECT_EQ(std::get<int64_t>(*Of(routing, "quire.routing.candidates")), 3);
  EXPECT_EQ(std::get<int64_t>(*Of(routing, "quire.routing.predicted_cached_tokens")), 16);
  for (const char* phase : {"routing decision", "worker queue", "prefill", "decode"}) {
    EXPECT_EQ(spans.at(phase).parent, attempt.id) << phase;
    EXPECT_EQ(spans.at(phase).trace, record.trace.id) << phase;
  }
  EXPECT_EQ(spans.at("prefill").end_unix_ns, spans.at("decode").start_unix_ns);
  std::set<uint64_t> ids;
  for (const Span& span : list) ids.insert(span.id);
  EXPECT_EQ(ids.size(), list.size()) << "each has an id of its own";
}

TEST(TraceSpans, ACarryOnIsAnAttemptOfItsOwnAndTheLostOneAnError) {
  RequestRecord record = Record();
  record.attempts[0].end = AttemptEnd::kLost;
  AttemptReport next = Attempt1(AttemptEnd::kFinished);
  next.attempt = Attempt(2);
  next.carry_on = true;
  next.sent_at = 4100;
  next.admitted_at = -1;
  next.first_output_at = -1;
  record.attempts.push_back(next);
  const std::map<std::string, Span> spans = ByName(SpansOf(record, kZero));
  EXPECT_EQ(spans.at("attempt").error, "lost");
  EXPECT_EQ(spans.at("carry_on").error, "");
  EXPECT_EQ(std::get<int64_t>(*Of(spans.at("carry_on"), "quire.attempt")), 2);
  ASSERT_EQ(spans.at("carry_on").links.size(), 1u) << "to what it goes on with";
  EXPECT_EQ(spans.at("carry_on").links[0].span, spans.at("attempt").id);
  EXPECT_TRUE(spans.at("attempt").links.empty());
  EXPECT_EQ(spans.at("carry_on").id, trace::RouterSpanId(77, 3, 2, 0)) << "as its worker is told";
}

TEST(TraceSpans, ARequestThatNeverReachedAWorkerHasItsErrorAndNoNegativeTimes) {
  RequestRecord record = Record();
  record.attempts.clear();
  record.queued_us = -1;
  record.first_token_us = -1;
  record.end = RequestEnd::kFailed;
  record.error = ApiCode::kDeadlineExceeded;
  const std::vector<Span> spans = SpansOf(record, kZero);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].error, "deadline_exceeded");
  for (const Span& span : spans) EXPECT_LE(span.start_unix_ns, span.end_unix_ns);
}

TEST(BeginTrace, GoesOnWithAClientsTraceOrBeginsOne) {
  const std::string header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
  const trace::Sampler sampler;
  const trace::RequestTrace continued = trace::BeginTrace(sampler, header, 1, 2);
  EXPECT_EQ(trace::TraceIdHex(continued.id), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(trace::SpanIdHex(continued.parent), "00f067aa0ba902b7");
  EXPECT_FALSE(continued.sampled) << "its client decided";
  const trace::RequestTrace own = trace::BeginTrace(sampler, "rubbish", 1, 2);
  EXPECT_TRUE(own.id.valid());
  EXPECT_EQ(own.parent, 0u);
  EXPECT_TRUE(own.sampled);
  const trace::RequestTrace off = trace::BeginTrace(std::nullopt, header, 1, 2);
  EXPECT_FALSE(off.sampled) << "nothing is exported";
  EXPECT_EQ(off.id, continued.id) << "logs name the client's trace all the same";
}

}  // namespace
}  // namespace quire
