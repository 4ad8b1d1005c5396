// One piece of work with its beginning, end and attributes, as OpenTelemetry defines it.
//
// A value. It contains no text of a prompt or an answer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/trace/context.h"

namespace quire::trace {

// As in the protocol.
enum class SpanKind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };

using AttributeValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

struct SpanEvent {
  std::string name;
  int64_t unix_ns = 0;
  Attributes attributes;
};

// Another span that is related to this one, without being its child.
struct SpanLink {
  TraceId trace;
  uint64_t span = 0;
  Attributes attributes;
};

struct Span {
  TraceId trace;
  uint64_t id = 0;
  uint64_t parent = 0;  // 0: none
  std::string state;    // the trace's tracestate, as it came
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  Attributes attributes;
  std::vector<SpanEvent> events;
  std::vector<SpanLink> links;
  std::string error;  // what went wrong; empty: the status is unset
};

}  // namespace quire::trace
