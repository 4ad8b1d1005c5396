// Fuzzes the metrics of workers as a router passes them on: whatever text a worker answers with,
// the merged text has each family once, and merging it again changes nothing. A zero byte parts the
// texts of two workers.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "common/metrics/merge.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckLines(std::string_view text) {
  std::set<std::string_view> families;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Require(end != std::string_view::npos);
    const std::string_view line = text.substr(0, end);
    if (line.starts_with("# TYPE ")) {
      const std::string_view rest = line.substr(7);
      Require(families.insert(rest.substr(0, rest.find(' '))).second);
    }
    text.remove_prefix(end + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view second = end == std::string_view::npos ? "" : input.substr(end + 1);
  const quire::MetricsPart parts[] = {{"", "# TYPE quire_up gauge\nquire_up 1\n"},
                                      {"0", std::string(input.substr(0, end))},
                                      {"1", std::string(second)}};
  const std::string merged = quire::MergeMetrics(parts);
  CheckLines(merged);
  const quire::MetricsPart again[] = {{"", merged}};
  Require(quire::MergeMetrics(again) == merged);
  return 0;
}
