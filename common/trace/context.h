// W3C trace context: links the spans of one request across processes.
//
// Values and pure functions, any thread. Headers come from clients: a text that is not exactly a
// traceparent of version 00, or of a later one with the same beginning, counts as none.
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
  uint64_t span = 0;  // of the sender's span
  bool sampled = false;
};

// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Empty for everything else: zero ids,
// capitals, version ff, other lengths.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
std::string FormatTraceparent(const TraceContext& context);

// At least this much of a tracestate is passed on, as the recommendation requires.
inline constexpr size_t kMaxTracestateBytes = 512;
// The part of a tracestate header that is passed on: all of it as it came; above the limit, its
// entries in their order, without the long ones (above 128 bytes) first, then without the last.
// Empty for an invalid one: an entry that is not key=value, more than 32 of them.
std::string KeepTracestate(std::string_view header);

std::string TraceIdHex(TraceId id);    // 32 digits
std::string SpanIdHex(uint64_t span);  // 16 digits

// One request's place in a trace.
struct RequestTrace {
  TraceId id;           // not valid: the request is not traced
  uint64_t span = 0;    // its own
  uint64_t parent = 0;  // its client's; 0: none
  bool sampled = false;
  std::string state;  // its client's tracestate, which all its spans carry unchanged
};

// Which traces are recorded, according to OTEL_TRACES_SAMPLER.
struct Sampler {
  double ratio = 1;  // of traces that begin here: by the low bits of their id, the same everywhere
  bool follow_parent = true;  // the sender of a context has decided
  bool Samples(TraceId id, const std::optional<TraceContext>& parent) const;
};

// A new trace's id, and a span's, from numbers that name it: never zero. The ids of two routers
// with different instances do not collide.
TraceId DerivedTraceId(uint64_t instance, uint64_t number);
uint64_t DerivedSpanId(uint64_t instance, uint64_t number, uint64_t part);

// Spans of attempt `attempt` of a request (0: the request itself) as its router makes them: part 0
// is the attempt, which is the parent of its worker's spans. And as the worker makes them, which
// may be a later version than the router.
uint64_t RouterSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part);
uint64_t WorkerSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part);

// The traceparent for the worker of an attempt: the request's, with the attempt's span in place of
// the request's. One that is invalid, or is not recorded, stays unchanged.
std::string AttemptTraceparent(std::string_view traceparent, uint64_t instance, uint64_t number,
                               uint64_t attempt);

// 32 digits for a log line about the request of that traceparent; empty: it is invalid.
std::string TraceIdOf(std::string_view traceparent);

// The header for the client, W3C's traceresponse: "00-TRACE-SPAN-01". Empty: the request is not
// traced.
std::string TraceResponse(const RequestTrace& trace);

// A request's trace: its client's where `header` is a traceparent, otherwise, with a sampler, a new
// one. Without a sampler nothing is recorded. `state` belongs to `header` and means nothing without
// one; it is the result of KeepTracestate.
RequestTrace BeginTrace(const std::optional<Sampler>& sampler, std::string_view header,
                        uint64_t instance, uint64_t number, std::string_view state = {});

}  // namespace quire::trace
