// Fuzzes what a Kubernetes API server may say: a page of a list, then the lines of a watch.
// Whatever it is, each target is one that can be dialled, and what was refused changed nothing.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/host_port.h"
#include "router/discovery/endpoint_slices.h"
#include "router/discovery/list_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  quire::EndpointSlices slices("");
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const auto before = slices.Targets();
    const bool taken = first ? slices.AddPage(line, true).ok() : slices.Apply(line).ok();
    first = false;
    const auto after = slices.Targets();
    if (!taken && after != before) std::abort();
    for (const std::string& target : after) {
      if (!quire::CheckTarget(target).ok()) std::abort();
    }
  }
  const auto list = quire::ParseWorkerList(text);
  if (!list.ok()) return 0;
  for (const std::string& target : *list) {
    if (!quire::CheckTarget(target).ok()) std::abort();
  }
  return 0;
}
