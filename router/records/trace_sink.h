// Requests as spans, which show a request's way through this router in a tracing system.
//
// Owner: main; Write is called on the router's executor and never waits. Sits in front of the other
// sinks and passes every record on. Spans are made from a request's record when it has ended: while
// it runs, tracing costs nothing. They contain no text and use OpenTelemetry's GenAI names where it
// has one.
#pragma once

#include <cstdint>
#include <vector>

#include "common/trace/exporter.h"
#include "common/trace/span.h"
#include "router/records/request_record.h"

namespace quire {

// The root (a server span), admission, queue, and each attempt with the phases that were seen of
// it. `unix_ns_at_zero` is the wall time at which the router's own clock was 0. Pure.
std::vector<trace::Span> SpansOf(const RequestRecord& record, int64_t unix_ns_at_zero);

class TraceSink final : public RecordSink {
 public:
  // `next` may be absent; both outlive this object.
  TraceSink(trace::Exporter& exporter, int64_t unix_ns_at_zero, RecordSink* next)
      : exporter_(exporter), unix_ns_at_zero_(unix_ns_at_zero), next_(next) {}
  void Write(const RequestRecord& record) override;

 private:
  trace::Exporter& exporter_;
  const int64_t unix_ns_at_zero_;
  RecordSink* const next_;
};

}  // namespace quire
