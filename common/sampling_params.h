// How one request samples its tokens, with every default resolved: plain data, checked at the edge.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace quire {

inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStopTokenIds = 128;
inline constexpr int kMaxLogitBias = 300;
inline constexpr int kMaxAllowedTokenIds = 4096;
inline constexpr int kMaxBadWords = 128;
inline constexpr int kMaxBadWordTokens = 64;
inline constexpr int kMaxChoices = 128;
inline constexpr int kMaxBeamWidth = 16;

// When a beam search gives up the beams that still run.
enum class EarlyStopping : uint8_t {
  kHeuristic,  // as many answers as beams, and the best beam, as long as it is now, is no better
  kWhenFull,   // as many answers as beams
  kNever,      // as many answers as beams, and no beam could become better at any length
};

struct SamplingParams {
  float temperature = 1.0f;         // [0, 100]; below 1e-5 is greedy
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // ≥ 0; 0 is off
  float min_p = 0.0f;               // [0, 1]
  float typical_p = 1.0f;           // (0, 1]
  float repetition_penalty = 1.0f;  // (0, 10]
  float frequency_penalty = 0.0f;   // [−2, 2]
  float presence_penalty = 0.0f;    // [−2, 2]
  uint64_t seed = 0;
  int32_t max_tokens = 16;  // ≥ 0; outputs in all, resumed ones included
  int32_t min_tokens = 0;   // [0, max_tokens]
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  std::vector<std::pair<TokenId, float>> logit_bias;  // each bias in [−100, 100]
  std::vector<TokenId> allowed_token_ids;
  std::vector<std::vector<TokenId>> bad_words;
  int32_t logprobs = 0;         // 0 none; 1 + k: the chosen token and the k ≤ 20 best
  int32_t prompt_logprobs = 0;  // the same, of prompt tokens
  int32_t beam_width = 0;       // 0 is no beam search
  float length_penalty = 1.0f;  // [−10, 10]; of a beam search
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
};

// INVALID_ARGUMENT naming the first field out of its range, with the range. `vocab_size` bounds
// token ids.
absl::Status ValidateSamplingParams(const SamplingParams& params, int32_t vocab_size);

}  // namespace quire
