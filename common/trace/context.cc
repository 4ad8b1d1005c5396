#include "common/trace/context.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

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

constexpr size_t kMaxTracestateEntries = 32;
constexpr size_t kLongTracestateEntry = 128;

bool IsLowerAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsTracestateEntry(std::string_view entry) {
  constexpr size_t kMaxPartBytes = 256;
  const size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view key = entry.substr(0, equals), value = entry.substr(equals + 1);
  if (key.empty() || key.size() > kMaxPartBytes || !IsLowerAlnum(key[0])) return false;
  if (value.empty() || value.size() > kMaxPartBytes) return false;
  constexpr std::string_view kMarks = "_-*/@";
  return std::all_of(key.begin(), key.end(),
                     [&](char c) { return IsLowerAlnum(c) || kMarks.find(c) != kMarks.npos; }) &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= 0x20 && c <= 0x7e && c != '='; });
}

// Its entries without the space around them; none where one of them is wrong.
std::vector<std::string_view> TracestateEntries(std::string_view header) {
  std::vector<std::string_view> entries;
  while (!header.empty()) {
    const size_t comma = std::min(header.find(','), header.size());
    std::string_view entry = header.substr(0, comma);
    header.remove_prefix(std::min(comma + 1, header.size()));
    const size_t begin = entry.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;  // empty ones are allowed
    entry = entry.substr(begin, entry.find_last_not_of(" \t") + 1 - begin);
    if (!IsTracestateEntry(entry) || entries.size() == kMaxTracestateEntries) return {};
    entries.push_back(entry);
  }
  return entries;
}

std::string Joined(const std::vector<std::string_view>& entries) {
  std::string text;
  for (const std::string_view entry : entries) text.append(text.empty() ? "" : ",").append(entry);
  return text;
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

std::string KeepTracestate(std::string_view header) {
  std::vector<std::string_view> entries = TracestateEntries(header);
  if (entries.empty()) return "";
  if (header.size() <= kMaxTracestateBytes) return std::string(header);
  std::string text = Joined(entries);
  while (text.size() > kMaxTracestateBytes) {
    const auto last_long = std::find_if(entries.rbegin(), entries.rend(), [](std::string_view e) {
      return e.size() > kLongTracestateEntry;
    });
    entries.erase(last_long == entries.rend() ? entries.end() - 1 : last_long.base() - 1);
    text = Joined(entries);
  }
  return text;
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
                        uint64_t instance, uint64_t number, std::string_view state) {
  const std::optional<TraceContext> parent = ParseTraceparent(header);
  RequestTrace trace;
  trace.span = DerivedSpanId(instance, number, 0);
  if (parent) {
    trace.id = parent->trace;
    trace.parent = parent->span;
    trace.state = std::string(state);
  } else if (sampler) {
    trace.id = DerivedTraceId(instance, number);
  }
  trace.sampled = sampler && sampler->Samples(trace.id, parent);
  return trace;
}

}  // namespace quire::trace
