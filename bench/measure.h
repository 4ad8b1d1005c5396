// Times, quantiles and prompts of the bench programs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "common/ids.h"
#include "common/json/json.h"

namespace quire::bench {

// Microseconds on a clock that does not jump.
inline double NowMicros() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

// Requires: `sorted` is not empty, and sorted.
inline double Quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

inline json::Object Spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  json::Object out;
  out["p50"] = Quantile(values, 0.5);
  out["p99"] = Quantile(values, 0.99);
  out["max"] = values.back();
  return out;
}

// Prompt number `seed`; made again where it is needed, since those of a million blocks are many
// tokens.
inline std::vector<TokenId> NumberedPrompt(uint64_t seed, int32_t length) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 250'000);
  return tokens;
}

}  // namespace quire::bench
