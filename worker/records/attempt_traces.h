// Attempts as spans and as log lines, which show a request's stay here in tracing systems and logs.
//
// Owner: main; Write is called on the rpc thread with each record and never waits. Spans are made
// from an attempt's record when it has ended: the engine's thread does not know of them. They
// contain no text and use OpenTelemetry's GenAI names where it has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/log/log.h"
#include "common/trace/exporter.h"
#include "common/trace/span.h"
#include "worker/core/attempt_record.h"

namespace quire {

// "stop", "router_lost".
std::string_view EndReasonName(EndReason reason);
// As logs and traces have it: "json_schema".
std::string_view ConstraintKindName(ConstraintKind kind);

// What all attempts of a worker share.
struct TraceFacts {
  std::string model;  // the served name
  std::string worker_id;
  uint64_t epoch = 0;
  int64_t unix_ns_at_zero = 0;  // the wall time at which the engine's clock was 0
};

// The router and attempt of a Submit, and its time on the engine's clock.
struct RefusedWhen {
  RouterInstance router;
  int64_t at_us = 0;
};

// The attempt (a server span below its router's span), queue, prefill with its chunks, decode with
// what was recomputed in it. Pure.
std::vector<trace::Span> SpansOf(const AttemptRecord& record, const trace::RequestTrace& trace,
                                 const TraceFacts& facts);

// A Submit that this worker refused: the same span without children, an error with the refusal's
// name. Pure.
trace::Span SpanOf(const Refused& refused, const trace::RequestTrace& trace,
                   const TraceFacts& facts, const RefusedWhen& when);

// One line: a warning for an attempt that this worker failed, otherwise at debug level.
void LogAttempt(const AttemptRecord& record, Logger& log);

class AttemptTraces {
 public:
  // `exporter` outlives this object. Absent: nothing is exported.
  AttemptTraces(trace::Exporter* exporter, const trace::Sampler& sampler, Logger& log)
      : exporter_(exporter), sampler_(sampler), log_(log) {}

  void Write(const AttemptRecord& record) const;
  void Write(const Refused& refused, const RefusedWhen& when) const;
  // The rpc thread, before the first record; called again with the new epoch when the device was
  // lost.
  void Start(TraceFacts facts) { facts_ = std::move(facts); }
  void SetEpoch(Epoch epoch) { facts_.epoch = epoch.value(); }

 private:
  trace::Exporter* const exporter_;
  const trace::Sampler sampler_;
  Logger& log_;
  TraceFacts facts_;
};

}  // namespace quire
