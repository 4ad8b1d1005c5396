// Fuzzes the reader of adapter_config.json and its patterns: what it accepts has ranks and scales
// that are served, of any module's name.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "worker/adapters/peft_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kName = "model.layers.0.mlp.up_proj";
  quire::PatternSteps steps;
  const auto pattern = quire::NamePattern::Parse(text);
  if (pattern.ok() && pattern->Matches(kName, steps) && !pattern->MatchesEnd(kName, steps)) {
    std::abort();
  }
  const auto config = quire::PeftConfig::Read(text, "fuzz");
  if (!config.ok()) return 0;
  for (const std::string_view name : {kName, std::string_view("q_proj"), std::string_view()}) {
    const auto module = config->Of(name, steps);
    if (!module.ok()) continue;
    if (module->rank < 1 || module->rank > quire::kMaxLoraRank) std::abort();
    if (!std::isfinite(module->scale)) std::abort();
  }
  return 0;
}
