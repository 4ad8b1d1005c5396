#include "router/records/trace_sink.h"

#include <algorithm>
#include <string>

#include "common/utf8.h"

namespace quire {
namespace {

using trace::Span;
using trace::SpanKind;

constexpr size_t kMaxNameBytes = 256;  // of what workers and clients chose

std::string Cut(const std::string& name) { return ValidUtf8(name.substr(0, kMaxNameBytes)); }

// Makes the spans of one request on its own clock.
class SpanMaker {
 public:
  SpanMaker(const RequestRecord& record, int64_t unix_ns_at_zero)
      : record_(record), zero_(unix_ns_at_zero) {}

  Span Make(std::string name, uint64_t id, uint64_t parent, Micros start, Micros end) const {
    Span span;
    span.trace = record_.trace.id;
    span.id = id;
    span.parent = parent;
    span.state = record_.trace.state;
    span.name = std::move(name);
    span.start_unix_ns = UnixNs(start);
    span.end_unix_ns = UnixNs(std::max(start, end));
    return span;
  }
  // The id of a part below an attempt; attempt 0 is the request itself.
  uint64_t Id(uint64_t attempt, uint64_t part) const {
    return trace::RouterSpanId(record_.router.value(), record_.request.value(), attempt, part);
  }
  int64_t UnixNs(Micros time) const { return zero_ + time * 1000; }

 private:
  const RequestRecord& record_;
  const int64_t zero_;
};

bool WentWrong(AttemptEnd end) {
  return end != AttemptEnd::kFinished && end != AttemptEnd::kCancelled &&
         end != AttemptEnd::kRunning && end != AttemptEnd::kDrained;
}

// The requested values, with every default resolved.
void AddSampling(const SampledWith& with, Span& root) {
  if (with.choices == 0) return;  // it did not get that far
  const auto add = [&root](const char* name, trace::AttributeValue value) {
    root.attributes.emplace_back(name, std::move(value));
  };
  add("gen_ai.request.max_tokens", int64_t{with.max_tokens});
  add("gen_ai.request.temperature", double{with.temperature});
  add("gen_ai.request.top_p", double{with.top_p});
  if (with.top_k > 0) add("gen_ai.request.top_k", int64_t{with.top_k});
  add("gen_ai.request.seed", static_cast<int64_t>(with.seed));
  if (with.choices > 1) add("gen_ai.request.choice.count", int64_t{with.choices});
}

Span RootSpan(const RequestRecord& record, const SpanMaker& make) {
  const std::string model = Cut(record.model);
  Span root = make.Make(record.operation + " " + model, record.trace.span, record.trace.parent,
                        record.arrived_at, record.arrived_at + record.total_us);
  root.kind = SpanKind::kServer;
  const auto add = [&root](const char* name, trace::AttributeValue value) {
    root.attributes.emplace_back(name, std::move(value));
  };
  add("gen_ai.operation.name", record.operation);
  add("gen_ai.provider.name", std::string("quire"));
  add("gen_ai.request.model", model);
  add("gen_ai.request.stream", record.streaming);
  if (!record.model_id.empty()) add("gen_ai.response.model", model);
  if (!record.finish_reasons.empty()) {
    add("gen_ai.response.finish_reasons", record.finish_reasons);
  }
  if (record.first_token_us >= 0) {
    add("gen_ai.response.time_to_first_chunk", static_cast<double>(record.first_token_us) / 1e6);
  }
  add("gen_ai.usage.input_tokens", static_cast<int64_t>(record.prompt_tokens));
  add("gen_ai.usage.output_tokens", static_cast<int64_t>(record.delivered_tokens));
  add("gen_ai.usage.cache_read.input_tokens", static_cast<int64_t>(record.cached_tokens));
  add("quire.request_id", Cut(record.request_id));
  if (!record.tenant.empty()) add("quire.tenant", Cut(record.tenant));
  add("quire.model_id", Cut(record.model_id));
  if (!record.adapter.empty()) add("quire.adapter", Cut(record.adapter));
  add("quire.priority", static_cast<int64_t>(record.priority));
  add("quire.attempts", static_cast<int64_t>(record.attempts_total));
  add("quire.end", std::string(RequestEndName(record.end)));
  if (record.inexact) add("quire.inexact", true);
  AddSampling(record.sampled_with, root);
  if (record.end == RequestEnd::kFailed || record.end == RequestEnd::kRejected) {
    root.error = std::string(ApiCodeName(record.error));
    add("error.type", root.error);
  }
  return root;
}

// The time before the first attempt: the template, the tokens and the checks, then the wait for its
// turn.
void AddWaits(const RequestRecord& record, const SpanMaker& make, std::vector<Span>& spans) {
  const Micros end = record.arrived_at + record.total_us;
  const bool sent = !record.attempts.empty() && record.queued_us >= 0;
  const Micros submitted = sent ? record.attempts.front().sent_at : end;
  const Micros queued = sent ? submitted - record.queued_us : end;
  spans.push_back(make.Make("admission", make.Id(0, 1), record.trace.span, record.arrived_at,
                            std::max(queued, record.arrived_at)));
  if (sent) {
    spans.push_back(make.Make("queue", make.Id(0, 2), record.trace.span, queued, submitted));
  }
}

// Why the attempt is at its worker. The choice takes microseconds of one thread: shown as an event.
Span RoutingSpan(const AttemptReport& attempt, const SpanMaker& make, uint64_t parent) {
  Span span = make.Make("routing decision", make.Id(attempt.attempt.value(), 4), parent,
                        attempt.sent_at, attempt.sent_at);
  const auto add = [&span](const char* name, trace::AttributeValue value) {
    span.attributes.emplace_back(name, std::move(value));
  };
  add("quire.worker.id", Cut(attempt.worker_id));
  add("quire.routing.reason", std::string(attempt.route.reason));
  add("quire.routing.candidates", int64_t{attempt.route.candidates});
  add("quire.routing.predicted_cached_tokens", int64_t{attempt.route.predicted_tokens});
  return span;
}

// A resumed attempt is linked to the attempt whose outputs it continues.
void AddAttempt(const RequestRecord& record, const AttemptReport& attempt, const SpanMaker& make,
                std::vector<Span>& spans) {
  const uint64_t number = attempt.attempt.value();
  Span span = make.Make(attempt.carry_on ? "carry_on" : "attempt", make.Id(number, 0),
                        record.trace.span, attempt.sent_at, attempt.over_at);
  span.kind = SpanKind::kClient;
  const auto add = [&span](const char* name, trace::AttributeValue value) {
    span.attributes.emplace_back(name, std::move(value));
  };
  add("quire.attempt", static_cast<int64_t>(number));
  add("quire.worker.id", Cut(attempt.worker_id));
  add("quire.worker.epoch", static_cast<int64_t>(attempt.epoch.value()));
  add("server.address", Cut(attempt.target));
  add("quire.attempt.end", std::string(AttemptEndName(attempt.end)));
  add("gen_ai.usage.output_tokens", static_cast<int64_t>(attempt.accepted_tokens));
  add("gen_ai.usage.cache_read.input_tokens", static_cast<int64_t>(attempt.cached_tokens));
  if (attempt.inexact) add("quire.inexact", true);
  if (WentWrong(attempt.end)) {
    span.error = std::string(AttemptEndName(attempt.end));
    add("error.type", span.error);
  }
  if (attempt.carry_on && number > 1) {
    span.links.push_back(
        {record.trace.id, make.Id(number - 1, 0), {{"quire.link", std::string("carries_on")}}});
  }
  const uint64_t parent = span.id;
  spans.push_back(std::move(span));
  spans.push_back(RoutingSpan(attempt, make, parent));
  if (attempt.admitted_at < 0) return;
  spans.push_back(
      make.Make("worker queue", make.Id(number, 1), parent, attempt.sent_at, attempt.admitted_at));
  const bool produced = attempt.first_output_at >= 0;
  const Micros first = produced ? attempt.first_output_at : attempt.over_at;
  spans.push_back(make.Make("prefill", make.Id(number, 2), parent, attempt.admitted_at, first));
  if (!produced) return;
  spans.push_back(make.Make("decode", make.Id(number, 3), parent, first, attempt.over_at));
}

}  // namespace

std::vector<Span> SpansOf(const RequestRecord& record, int64_t unix_ns_at_zero) {
  const SpanMaker make(record, unix_ns_at_zero);
  std::vector<Span> spans = {RootSpan(record, make)};
  AddWaits(record, make, spans);
  for (const AttemptReport& attempt : record.attempts) AddAttempt(record, attempt, make, spans);
  return spans;
}

void TraceSink::Write(const RequestRecord& record) {
  if (record.trace.sampled) exporter_.Offer(SpansOf(record, unix_ns_at_zero_));
  if (next_ != nullptr) next_->Write(record);
}

}  // namespace quire
