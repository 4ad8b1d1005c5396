// What OpenTelemetry's environment variables define for traces: whether, where to, which, how many.
//
// Pure; the environment comes in as data from main. The OpenTelemetry specification defines the
// variables and their defaults; an invalid one is reported and its default applies, as the
// specification requires.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/trace/span.h"

namespace quire::trace {

inline constexpr size_t kMostQueuedSpans = 65'536;

struct TraceSettings {
  bool on = false;  // an endpoint was given, and nothing switches traces off
  std::string url;  // "http://collector:4318/v1/traces"
  std::vector<std::pair<std::string, std::string>> headers;
  std::string certificate_file;  // authorities for https; empty: the system's
  Attributes resource;           // service.name and other attributes
  Sampler sampler;
  bool gzip = false;                  // bodies are compressed
  int64_t timeout_ms = 10'000;        // of one export
  int64_t delay_ms = 5'000;           // between exports while fewer than a batch wait
  size_t max_queue = 2048;            // spans that wait; more are dropped
  size_t max_batch = 512;             // spans of one export
  int64_t last_exports_ms = 3'000;    // the longest time of an exporter's destructor
  std::vector<std::string> warnings;  // one line each
};

// `service` is service.name unless a variable sets it; `endpoint` (a flag) takes precedence over
// the variables.
TraceSettings TraceSettingsOf(const std::map<std::string, std::string>& environment,
                              const std::string& service, const std::string& endpoint = "");

// An endpoint as it may be logged: scheme, host and port. Paths, queries and names before an "@"
// are left out, since collectors put keys there.
std::string ShownUrl(std::string_view url);

}  // namespace quire::trace
