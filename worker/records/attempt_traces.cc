#include "worker/records/attempt_traces.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/hex.h"
#include "worker/core/refusal_names.h"

namespace quire {
namespace {

using trace::Span;

constexpr std::array<const char*, 9> kReasons = {"unspecified", "stop",    "length",
                                                 "cancelled",   "failed",  "deadline",
                                                 "router_lost", "drained", "slow_client"};

constexpr std::array<const char*, 8> kConstraintKinds = {
    "none", "json_schema", "regex", "gbnf", "json_object", "choice", "lark", "structural_tag"};

// Parts of an attempt: WorkerSpanId's.
enum Part : uint64_t { kAttempt, kQueue, kPrefill, kDecode, kChunks };

bool WentWrong(EndReason reason) {
  return reason == EndReason::kFailed || reason == EndReason::kDeadline ||
         reason == EndReason::kRouterLost || reason == EndReason::kSlowClient;
}

// Times of a record since its attempt was accepted.
struct Phases {
  explicit Phases(const AttemptRecord& record)
      : accepted(record.accepted_us),
        launched(accepted + record.queue_us),
        first_token(launched + record.prefill_us),
        end(first_token + record.decode_us) {}
  int64_t accepted, launched, first_token, end;
};

class Maker {
 public:
  Maker(const AttemptRecord& record, const trace::RequestTrace& trace, int64_t zero_ns)
      : record_(record), trace_(trace), zero_ns_(zero_ns) {}

  Span Make(std::string name, uint64_t part, uint64_t parent, int64_t start_us,
            int64_t end_us) const {
    Span span;
    span.trace = trace_.id;
    span.id = Id(part);
    span.parent = parent;
    span.state = trace_.state;
    span.name = std::move(name);
    span.start_unix_ns = zero_ns_ + start_us * 1000;
    span.end_unix_ns = zero_ns_ + std::max(start_us, end_us) * 1000;
    return span;
  }
  uint64_t Id(uint64_t part) const {
    return trace::WorkerSpanId(record_.router.value(), record_.key.request.value(),
                               record_.key.attempt.value(), part);
  }

 private:
  const AttemptRecord& record_;
  const trace::RequestTrace& trace_;
  const int64_t zero_ns_;
};

void Add(Span& span, const char* name, trace::AttributeValue value) {
  span.attributes.emplace_back(name, std::move(value));
}

void AddUsage(const AttemptRecord& record, Span& span) {
  const AttemptUsage& usage = record.usage;
  Add(span, "gen_ai.usage.input_tokens", int64_t{usage.prompt_tokens});
  Add(span, "gen_ai.usage.output_tokens", int64_t{usage.generated_tokens - usage.discarded_tokens});
  Add(span, "gen_ai.usage.cache_read.input_tokens", int64_t{usage.cached_tokens});
  Add(span, "quire.tokens.computed", int64_t{usage.computed_tokens});
  Add(span, "quire.tokens.recomputed", int64_t{usage.recomputed_tokens});
  Add(span, "quire.tokens.discarded", int64_t{usage.discarded_tokens});
  Add(span, "quire.tokens.resumed", static_cast<int64_t>(record.resumed_tokens));
  Add(span, "quire.preemptions", int64_t{record.preemptions});
}

void AddConstraint(const ConstraintUse& constraint, Span& span) {
  if (constraint.kind == ConstraintKind::kNone) return;
  Add(span, "quire.constraint.kind", std::string(ConstraintKindName(constraint.kind)));
  Add(span, "quire.constraint.kept", constraint.kept);
  Add(span, "quire.constraint.compile_us", constraint.compile_us);
  Add(span, "quire.constraint.mask_us", constraint.mask_us);
}

Span AttemptSpan(const AttemptRecord& record, const trace::RequestTrace& trace,
                 const TraceFacts& facts, const Maker& make) {
  const Phases phases(record);
  Span span = make.Make("text_completion " + facts.model, kAttempt, trace.parent, phases.accepted,
                        phases.end);
  span.kind = trace::SpanKind::kServer;
  Add(span, "gen_ai.operation.name", std::string("text_completion"));
  Add(span, "gen_ai.provider.name", std::string("quire"));
  Add(span, "gen_ai.request.model", facts.model);
  Add(span, "gen_ai.response.model", facts.model);
  if (record.choices > 1) Add(span, "gen_ai.request.choice.count", int64_t{record.choices});
  AddUsage(record, span);
  Add(span, "quire.request_id", record.request_id);
  if (!record.tenant.empty()) Add(span, "quire.tenant", record.tenant);
  if (!record.adapter.empty()) Add(span, "quire.adapter", record.adapter);
  AddConstraint(record.constraint, span);
  Add(span, "quire.worker.id", facts.worker_id);
  Add(span, "quire.worker.epoch", static_cast<int64_t>(facts.epoch));
  Add(span, "quire.attempt", static_cast<int64_t>(record.key.attempt.value()));
  Add(span, "quire.attempt.end", std::string(EndReasonName(record.reason)));
  if (WentWrong(record.reason)) {
    span.error = std::string(EndReasonName(record.reason));
    Add(span, "error.type", span.error);
  }
  return span;
}

}  // namespace

std::string_view EndReasonName(EndReason reason) {
  const size_t at = static_cast<size_t>(reason);
  QUIRE_CHECK(at < kReasons.size());
  return kReasons[at];
}

std::string_view ConstraintKindName(ConstraintKind kind) {
  const size_t at = static_cast<size_t>(kind);
  QUIRE_CHECK(at < kConstraintKinds.size());
  return kConstraintKinds[at];
}

std::vector<Span> SpansOf(const AttemptRecord& record, const trace::RequestTrace& trace,
                          const TraceFacts& facts) {
  const Maker make(record, trace, facts.unix_ns_at_zero);
  const Phases phases(record);
  std::vector<Span> spans = {AttemptSpan(record, trace, facts, make)};
  const uint64_t attempt = make.Id(kAttempt);
  spans.push_back(make.Make("queue", kQueue, attempt, phases.accepted, phases.launched));
  if (phases.launched == phases.end) return spans;
  spans.push_back(make.Make("prefill", kPrefill, attempt, phases.launched, phases.first_token));
  Add(spans.back(), "gen_ai.usage.cache_read.input_tokens", int64_t{record.usage.cached_tokens});
  const bool decoded = phases.first_token < phases.end;
  if (decoded) {
    spans.push_back(make.Make("decode", kDecode, attempt, phases.first_token, phases.end));
    Add(spans.back(), "quire.preemptions", int64_t{record.preemptions});
  }
  uint64_t part = kChunks;
  for (const PrefillChunk& chunk : record.prefill.all()) {
    // Released tokens are computed again after the first token.
    const bool again = decoded && chunk.start_us >= phases.first_token;
    spans.push_back(make.Make(again ? "recompute" : "prefill chunk", part++,
                              make.Id(again ? kDecode : kPrefill), chunk.start_us, chunk.end_us));
    Add(spans.back(), "quire.chunk.tokens", int64_t{chunk.tokens});
    Add(spans.back(), "quire.chunk.steps", int64_t{chunk.steps});
  }
  return spans;
}

Span SpanOf(const Refused& refused, const trace::RequestTrace& trace, const TraceFacts& facts,
            const RefusedWhen& when) {
  AttemptRecord record;  // one that took no time and did nothing
  record.router = when.router;
  record.key = refused.key;
  record.request_id = refused.request_id;
  record.accepted_us = when.at_us;
  Span span = AttemptSpan(record, trace, facts, Maker(record, trace, facts.unix_ns_at_zero));
  std::erase_if(span.attributes, [](const auto& attribute) {
    return attribute.first == "quire.attempt.end" || attribute.first.starts_with("gen_ai.usage.") ||
           attribute.first.starts_with("quire.tokens.") || attribute.first == "quire.preemptions";
  });
  Add(span, "quire.attempt.end", std::string("refused"));
  span.error = std::string(RefusalName(refused.code));
  Add(span, "error.type", span.error);
  return span;
}

void LogAttempt(const AttemptRecord& record, Logger& log) {
  const LogLevel level =
      record.reason == EndReason::kFailed ? LogLevel::kWarning : LogLevel::kDebug;
  if (!log.Enabled(level)) return;
  log.Log(level, "an attempt has ended",
          {{"request_id", record.request_id},
           {"trace_id", trace::TraceIdOf(record.traceparent)},
           {"router", HexOf(record.router.value())},
           {"request", record.key.request.value()},
           {"attempt", record.key.attempt.value()},
           {"reason", EndReasonName(record.reason)},
           {"prompt_tokens", record.usage.prompt_tokens},
           {"cached_tokens", record.usage.cached_tokens},
           {"generated_tokens", record.usage.generated_tokens},
           {"preemptions", record.preemptions},
           {"queue_us", record.queue_us},
           {"prefill_us", record.prefill_us},
           {"decode_us", record.decode_us}});
}

void AttemptTraces::Write(const Refused& refused, const RefusedWhen& when) const {
  log_.Debug("a request was refused", {{"request_id", refused.request_id},
                                       {"trace_id", trace::TraceIdOf(refused.traceparent)},
                                       {"router", HexOf(when.router.value())},
                                       {"request", refused.key.request.value()},
                                       {"attempt", refused.key.attempt.value()},
                                       {"code", RefusalName(refused.code)},
                                       {"field", refused.field}});
  if (exporter_ == nullptr) return;
  const trace::RequestTrace trace =
      trace::BeginTrace(sampler_, refused.traceparent, when.router.value(),
                        refused.key.request.value(), refused.tracestate);
  if (trace.sampled) exporter_->Offer({SpanOf(refused, trace, facts_, when)});
}

void AttemptTraces::Write(const AttemptRecord& record) const {
  LogAttempt(record, log_);
  if (exporter_ == nullptr) return;
  const trace::RequestTrace trace =
      trace::BeginTrace(sampler_, record.traceparent, record.router.value(),
                        record.key.request.value(), record.tracestate);
  if (trace.sampled) exporter_->Offer(SpansOf(record, trace, facts_));
}

}  // namespace quire
