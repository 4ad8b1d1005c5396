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
  const auto pattern = quire::NamePattern::Parse(text);
  if (pattern.ok() && pattern->Matches("model.layers.0.mlp.up_proj") &&
      !pattern->MatchesEnd("model.layers.0.mlp.up_proj")) {
    std::abort();
  }
  const auto config = quire::PeftConfig::Read(text, "fuzz");
  if (!config.ok()) return 0;
  for (const std::string name :
       {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "q_proj", ""}) {
    (void)config->Targets(name);
    const int rank = config->RankOf(name);
    if (rank < 1 || rank > quire::kMaxLoraRank) std::abort();
    if (!std::isfinite(config->ScaleOf(name))) std::abort();
  }
  return 0;
}
