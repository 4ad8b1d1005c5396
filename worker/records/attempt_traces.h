// Attempts as spans and as lines of the log: what tracing systems and readers see of a request's
// stay here.
//
// Owner: main; Write is called on the rpc thread with each record and never waits. Spans are made
// when an attempt has ended, from its record: the engine's thread knows nothing of them. They hold
// no text and bear OpenTelemetry's GenAI names where it has one.
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

// What all attempts of a worker share.
struct TraceFacts {
  std::string model;  // as it is served
  std::string worker_id;
  uint64_t epoch = 0;
  int64_t unix_ns_at_zero = 0;  // the wall time at which the engine's clock stood at 0
};

// Which router's Submit, and when on the engine's clock.
struct RefusedWhen {
  RouterInstance router;
  int64_t at_us = 0;
};

// The attempt (a server's span below its router's), queue, prefill with its chunks, decode with
// what was computed again in it. Pure.
std::vector<trace::Span> SpansOf(const AttemptRecord& record, const trace::RequestTrace& trace,
                                 const TraceFacts& facts);

// A Submit that this worker did not take: the same span without any other, an error by the
// refusal's name. Pure.
trace::Span SpanOf(const Refused& refused, const trace::RequestTrace& trace,
                   const TraceFacts& facts, const RefusedWhen& when);

// One line: a warning for an attempt that this worker failed, else for who debugs.
void LogAttempt(const AttemptRecord& record, Logger& log);

class AttemptTraces {
 public:
  // `exporter` outlives it. Absent: nothing is exported.
  AttemptTraces(trace::Exporter* exporter, const trace::Sampler& sampler, Logger& log)
      : exporter_(exporter), sampler_(sampler), log_(log) {}

  void Write(const AttemptRecord& record) const;
  void Write(const Refused& refused, const RefusedWhen& when) const;
  // The rpc thread, before the first record; the epoch again when the device was lost.
  void Start(TraceFacts facts) { facts_ = std::move(facts); }
  void SetEpoch(Epoch epoch) { facts_.epoch = epoch.value(); }

 private:
  trace::Exporter* const exporter_;
  const trace::Sampler sampler_;
  Logger& log_;
  TraceFacts facts_;
};

}  // namespace quire
