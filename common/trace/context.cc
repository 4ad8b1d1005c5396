#include "common/trace/context.h"

#include <xxhash.h>

#include <array>
#include <cstdio>

namespace quire::trace {
namespace {

constexpr size_t kHeaderSize = 55;
constexpr uint64_t kRouterParts = 8;  // spans of one attempt
constexpr uint64_t kWorkerParts = 64;
constexpr uint64_t kWorkerBit = uint64_t{1} << 63;  // no router's part has it

// Lower-case hexadecimal digits only, as the recommendation asks.
bool ReadHex(std::string_view digits, uint64_t& value) {
  value = 0;
  for (const char c : digits) {
    uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint64_t>(c - 'a') + 10;
    } else {
      return false;
    }
    value = value << 4 | digit;
  }
  return true;
}

uint64_t Hash(const std::array<uint64_t, 3>& words, uint64_t seed) {
  const uint64_t hash = XXH3_64bits_withSeed(words.data(), sizeof(words), seed);
  return hash == 0 ? 1 : hash;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kHeaderSize || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return std::nullopt;
  }
  uint64_t version = 0, flags = 0;
  TraceContext context;
  if (!ReadHex(header.substr(0, 2), version) || version == 0xff ||
      !ReadHex(header.substr(3, 16), context.trace.high) ||
      !ReadHex(header.substr(19, 16), context.trace.low) ||
      !ReadHex(header.substr(36, 16), context.span) || !ReadHex(header.substr(53, 2), flags)) {
    return std::nullopt;
  }
  // A later version may say more behind another dash.
  const bool longer = header.size() > kHeaderSize;
  if (longer && (version == 0 || header[kHeaderSize] != '-')) return std::nullopt;
  if (!context.trace.valid() || context.span == 0) return std::nullopt;
  context.sampled = (flags & 1) != 0;
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  return "00-" + TraceIdHex(context.trace) + "-" + SpanIdHex(context.span) +
         (context.sampled ? "-01" : "-00");
}

std::string TraceIdHex(TraceId id) { return SpanIdHex(id.high) + SpanIdHex(id.low); }

std::string SpanIdHex(uint64_t span) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(span));
  return text;
}

bool Sampler::Samples(TraceId id, const std::optional<TraceContext>& parent) const {
  if (follow_parent && parent) return parent->sampled;
  if (ratio >= 1) return true;
  // The low 56 bits are random by the recommendation; 53 of them are exact in a double.
  constexpr uint64_t kBits = (uint64_t{1} << 53) - 1;
  return static_cast<double>(id.low & kBits) < ratio * static_cast<double>(kBits + 1);
}

TraceId DerivedTraceId(uint64_t instance, uint64_t number) {
  return {Hash({instance, number, 0}, 1), Hash({instance, number, 0}, 2)};
}

uint64_t DerivedSpanId(uint64_t instance, uint64_t number, uint64_t part) {
  return Hash({instance, number, part}, 3);
}

uint64_t RouterSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part) {
  return DerivedSpanId(instance, number, attempt * kRouterParts + part);
}

uint64_t WorkerSpanId(uint64_t instance, uint64_t number, uint64_t attempt, uint64_t part) {
  return DerivedSpanId(instance, number, kWorkerBit | (attempt * kWorkerParts + part));
}

std::string AttemptTraceparent(std::string_view traceparent, uint64_t instance, uint64_t number,
                               uint64_t attempt) {
  std::optional<TraceContext> context = ParseTraceparent(traceparent);
  if (!context || !context->sampled) return std::string(traceparent);
  context->span = RouterSpanId(instance, number, attempt, 0);
  return FormatTraceparent(*context);
}

std::string TraceIdOf(std::string_view traceparent) {
  const std::optional<TraceContext> context = ParseTraceparent(traceparent);
  return context ? TraceIdHex(context->trace) : "";
}

std::string TraceResponse(const RequestTrace& trace) {
  return trace.id.valid() ? FormatTraceparent({trace.id, trace.span, trace.sampled}) : "";
}

RequestTrace BeginTrace(const std::optional<Sampler>& sampler, std::string_view header,
                        uint64_t instance, uint64_t number) {
  const std::optional<TraceContext> parent = ParseTraceparent(header);
  RequestTrace trace;
  trace.span = DerivedSpanId(instance, number, 0);
  if (parent) {
    trace.id = parent->trace;
    trace.parent = parent->span;
  } else if (sampler) {
    trace.id = DerivedTraceId(instance, number);
  }
  trace.sampled = sampler && sampler->Samples(trace.id, parent);
  return trace;
}

}  // namespace quire::trace
