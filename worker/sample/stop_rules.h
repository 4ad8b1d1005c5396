// When a choice is over: the model's end tokens, the request's stop tokens, its limits.
//
// Pure. Stop strings belong to the router's stream, which ends the choice by Finish.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/wire/sampling.h"
#include "common/wire/values.h"

namespace quire {

// Sorted, without duplicates: the request's stop token ids and, unless it ignores them, the model's
// end-of-sequence ids.
std::vector<TokenId> EndIds(const SamplingParams& params, std::span<const TokenId> eos_token_ids);

// One bit for each id's remainder by 64: a token whose bit is missing is none of the ids.
uint64_t EndFilter(std::span<const TokenId> end_ids);

// The most outputs that a choice may have: max_tokens, or fewer where the context ends first.
int64_t OutputLimit(const SamplingParams& params, int64_t prompt_length, int64_t max_model_len);

struct StopVerdict {
  EndReason reason = EndReason::kStop;
  bool by_stop_token = false;
  TokenId stop_token_id = 0;
};

struct StopRules {
  std::span<const TokenId> end_ids;  // sorted
  int64_t min_tokens = 0;
  int64_t output_limit = 0;
};

// A fast check: false for nearly every token, when CheckStop would return that the choice is not
// over.
inline bool MayStop(uint64_t end_filter, TokenId token, int64_t output_count,
                    int64_t output_limit) {
  return ((end_filter >> (static_cast<uint32_t>(token) % 64)) & 1) != 0 ||
         output_count >= output_limit;
}

// Whether a choice is over whose last output, number `output_count`, is `token`. An end token among
// the first min_tokens outputs does not end it (such a token was forced).
std::optional<StopVerdict> CheckStop(const StopRules& rules, TokenId token, int64_t output_count);

}  // namespace quire
