// Fuzzes adapters.json: what it lists has names, each once, and no more of them than are served;
// every entry is an adapter or a problem.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "worker/adapters/desired_adapters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto desired =
      quire::ParseDesiredAdapters({reinterpret_cast<const char*>(data), size}, "adapters.json");
  if (!desired.ok()) {
    if (desired.status().message().empty()) std::abort();
    return 0;
  }
  if (desired->adapters.size() > quire::kMaxDesiredAdapters) std::abort();
  if (desired->adapters.size() + desired->problems.size() > quire::kMaxDesiredEntries) std::abort();
  std::set<std::string> names;
  for (const quire::DesiredAdapter& adapter : desired->adapters) {
    if (adapter.name.empty() || adapter.path.empty()) std::abort();
    if (!names.insert(adapter.name).second) std::abort();
  }
  for (const auto& [entry, why] : desired->problems) {
    if (why.empty()) std::abort();
  }
  return 0;
}
