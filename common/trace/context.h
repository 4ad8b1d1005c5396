// W3C trace context: what ties the spans of one request together across processes.
//
// Values and pure functions, any thread. Headers come from clients: whatever is not exactly a
// traceparent of version 00, or of a later one with the same beginning, is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::trace {

struct TraceId {
  uint64_t high = 0, low = 0;
  bool valid() const { return (high | low) != 0; }
  friend bool operator==(const TraceId&, const TraceId&) = default;
};

struct TraceContext {
  TraceId trace;
  uint64_t span = 0;  // of whoever sent it
  bool sampled = false;
};

// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Nothing for all else: zero ids,
// capitals, version ff, other lengths.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
std::string FormatTraceparent(const TraceContext& context);

// At least so much of a tracestate is handed on, as the recommendation asks.
inline constexpr size_t kMaxTracestateBytes = 512;
// What is handed on of a tracestate header: all of it as it came; of one above the limit its
// entries in their order, the long ones (above 128 bytes) left out first, then the last. Empty for
// what is none: an entry that is not key=value, more than 32 of them.
std::string KeepTracestate(std::string_view header);

std::string TraceIdHex(TraceId id);    // 32 digits
std::string SpanIdHex(uint64_t span);  // 16 digits

// One request's place in a trace.
struct RequestTrace {
  TraceId id;           // not valid: nobody traces it
  uint64_t span = 0;    // its own
  uint64_t parent = 0;  // its client's; 0: none
  bool sampled = false;
  std::string state;  // its client's tracestate, which all its spans carry on unchanged
};

// Which traces are recorded, as OTEL_TRACES_SAMPLER says.
struct Sampler {
  double ratio = 1;  // of traces that begin here: by the low bits of their id, the same everywhere
  bool follow_parent = true;  // who sent a context has decided
  bool Samples(TraceId id, const std::optional<TraceContext>& parent) const;
};

// A new trace's id, and a span's, from numbers that name it: never zero. Two routers with different
// instances do not meet.
TraceId DerivedTraceId(uint64_t instance, uint64_t number);
uint64_t DerivedSpanId(uint64_t instance, uint64_t number, uint64_t part);

// Spans of attempt `attempt` of a request (0: of the request itself) as its router makes them:
// part 0 is the attempt, which its worker's spans have as their parent. And as the worker makes
// them, which may be a later program than the router.
uint64_t RouterSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part);
uint64_t WorkerSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part);

// What the worker of an attempt is sent: the request's traceparent with the attempt's span in place
// of the request's. One that is none, or is not recorded, stays as it is.
std::string AttemptTraceparent(std::string_view traceparent, uint64_t instance, uint64_t number,
                               uint64_t attempt);

// 32 digits for a log line about the request of that traceparent; empty: it is none.
std::string TraceIdOf(std::string_view traceparent);

// What its client is told, as W3C's traceresponse: "00-TRACE-SPAN-01". Empty: nobody traces it.
std::string TraceResponse(const RequestTrace& trace);

// A request's trace: its client's where `header` is a traceparent, else, with a sampler, one of its
// own. Without a sampler nothing is recorded. `state` belongs to `header` and means nothing without
// one; it is what KeepTracestate gave.
RequestTrace BeginTrace(const std::optional<Sampler>& sampler, std::string_view header,
                        uint64_t instance, uint64_t number, std::string_view state = {});

}  // namespace quire::trace
