// The sampling kernel's input for one row, and its output. Flat and unowned: the runner keeps it.
//
// Order of work (the same on every device): float32 logits → logprobs (raw) → allowed ids / grammar
// → bad words → min_tokens → logit_bias → repetition, frequency, presence penalties → greedy if
// temperature < 1e-5 → temperature → min_p → top_k → top_p → typical_p → draw. Draw: argmax over
// the survivors of z / T + Gumbel noise from Philox4x32-10, key = seed, counter = (choice, output
// index, token id, purpose). Ties go to the lowest id.
#pragma once

#include <cstdint>
#include <span>

namespace quire::kernels {

inline constexpr int kMaxTopLogprobs = 20;
inline constexpr float kGreedyTemperature = 1e-5f;  // below it the largest logit is chosen

struct TokenBias {
  int32_t id = 0;
  float bias = 0.0f;
};

// How often a token occurs in the prompt and in the outputs, for penalties.
struct TokenCount {
  int32_t id = 0;
  int32_t output_count = 0;  // 0: only in the prompt
};

// The numbers of a request that the arithmetic reads, at their neutral values. Every shape of a
// request's sampling embeds them; common/wire/sampling.h has their ranges.
struct SampleNumbers {
  float temperature = 1.0f;  // below kGreedyTemperature is greedy
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int32_t top_k = 0;  // 0 is off
  uint64_t seed = 0;
  int32_t logprobs = 0;  // 0 none, 1 the chosen token only, 1 + k also the k best
};

struct SampleRow : SampleNumbers {
  uint32_t choice = 0;
  uint64_t output_index = 0;
  int32_t scored_token = -1;  // ≥ 0: nothing is chosen; this token's logprob and rank are computed
  std::span<const uint32_t> allowed_mask;  // one bit per id, or empty: all
  std::span<const int32_t> banned_ids;  // bad words that would complete now; ends before min_tokens
  std::span<const TokenBias> logit_bias;     // sorted by id
  std::span<const TokenCount> token_counts;  // sorted by id; needed only with penalties
};

// Whether the row's token is the one with the largest logit, and nothing else is asked for.
inline bool IsPlainlyGreedy(const SampleRow& row) {
  return row.temperature < kGreedyTemperature && row.logprobs == 0 && row.scored_token < 0 &&
         row.repetition_penalty == 1.0f && row.frequency_penalty == 0.0f &&
         row.presence_penalty == 0.0f && row.allowed_mask.empty() && row.banned_ids.empty() &&
         row.logit_bias.empty();
}

struct SampleOutput {
  int32_t token = -1;  // −1: no token could be chosen (NaN logits, or nothing allowed)
  bool not_a_number = false;
  float logprob = 0.0f;  // raw, of the chosen token; set when logprobs ≥ 1
  int32_t rank = 0;      // of a scored token among the raw logits, from 1; 0: not scored
  int32_t top_count = 0;
  int32_t top_ids[kMaxTopLogprobs] = {};
  float top_logprobs[kMaxTopLogprobs] = {};
};

}  // namespace quire::kernels
