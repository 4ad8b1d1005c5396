#include "worker/sample/stop_rules.h"

#include <algorithm>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {

std::vector<TokenId> EndIds(const SamplingParams& params, std::span<const TokenId> eos_token_ids) {
  std::vector<TokenId> ids = params.stop_token_ids;
  if (!params.ignore_eos) ids.insert(ids.end(), eos_token_ids.begin(), eos_token_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

uint64_t EndFilter(std::span<const TokenId> end_ids) {
  uint64_t filter = 0;
  for (const TokenId id : end_ids) filter |= uint64_t{1} << (static_cast<uint32_t>(id) % 64);
  return filter;
}

int64_t OutputLimit(const SamplingParams& params, int64_t prompt_length, int64_t max_model_len) {
  QUIRE_CHECK(prompt_length > 0 && max_model_len > 0);
  if (QUIRE_BUG(limit_without_context)) return std::max(1, params.max_tokens);
  // With max_tokens 0 one is sampled and dropped: only the prompt's part of the step is needed.
  return std::min<int64_t>(std::max(1, params.max_tokens), max_model_len - prompt_length);
}

std::optional<StopVerdict> CheckStop(const StopRules& rules, TokenId token, int64_t output_count) {
  QUIRE_CHECK(output_count > 0);
  if (output_count > rules.min_tokens &&
      std::binary_search(rules.end_ids.begin(), rules.end_ids.end(), token)) {
    return StopVerdict{EndReason::kStop, true, token};
  }
  if (output_count >= rules.output_limit) return StopVerdict{.reason = EndReason::kLength};
  return std::nullopt;
}

}  // namespace quire
