// Spans as OTLP: the Protobuf message
// opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest.
//
// Pure, any thread. Written field by field after opentelemetry-proto 1.3, because only this message
// of it is needed; the tests read it back with the published schema.
#pragma once

#include <span>
#include <string>

#include "common/trace/span.h"

namespace quire::trace {

std::string EncodeOtlp(const Attributes& resource, std::span<const Span> spans);

}  // namespace quire::trace
