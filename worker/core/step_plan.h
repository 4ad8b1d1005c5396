// One step as plain data: what the scheduler plans (StepPlan) and what the runner returns
// (StepResult).
//
// A runner keeps the state of rows between plans: tokens, positions, sampling state, block tables.
// A plan names only what changes. It is applied in the order of its fields, top to bottom.
//
// Invariants of a plan:
// 1. A row appears at most once in each of `retired`, `born` and `rows`; a row in `rows` is alive.
// 2. A row's new tokens follow those it has. Its input is its tokens [first_position,
//    first_position + q_len); when the runner has not received the last of these, it is the row's
//    last sample.
// 3. A row samples only when its input ends at its last token.
// 4. A scored position is in the row's input, and the token after it is one of the prompt.
// 5. A row with drafts computes its last token, whose value the plan's maker knows, and then them:
//    q_len = 1 + draft_count. All these positions sample. Drafts that
//    equal the sample before them become tokens of the row, up to the first that does not; the
//    sample after them is the row's last token. No later plan names the row before its samples have
//    been taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/wire/sampling.h"

namespace quire {

// A sequence takes a row of the runner's table.
struct RowBirth {
  int32_t row = 0;
  uint64_t sequence = 0;  // never used twice; the result names it again
  uint32_t choice = 0;
  int32_t prompt_length = 0;  // tokens from this position on are outputs
  SamplingParams sampling;
  std::vector<TokenId>
      end_ids;                // sorted: stop and end-of-sequence ids, not sampled before min_tokens
  bool constrained = false;   // each of its samples has a mask, see worker/runner/step_masks.h
  int32_t adapter_slot = -1;  // of its adapter, as long as it lives; −1: it has none
};

// Blocks of a row's group below `first_live` are gone (behind a window) and never read again.
struct BlockDrop {
  int32_t row = 0;
  int32_t group = 0;
  int32_t first_live = 0;
};

// Logical block `block` of a row's group is in `page`.
struct BlockAppend {
  int32_t row = 0;
  int32_t group = 0;
  int32_t block = 0;
  int32_t page = 0;
};

// A page that is copied before anything is computed.
struct PlannedCopy {
  int32_t from = 0;
  int32_t to = 0;
};

// Work of one row in this step.
struct StepRow {
  int32_t row = 0;
  int32_t first_position = 0;
  int32_t q_len = 0;         // tokens computed; at least 1
  int32_t token_offset = 0;  // new tokens of the row: StepPlan::tokens[offset, offset + count)
  int32_t token_count = 0;
  bool sample = false;
  // Prompt logprobs: for each input position in [score_from, score_from + score_count) the next
  // token, which is known, is scored.
  int32_t score_from = 0;
  int32_t score_count = 0;
  int32_t draft_count = 0;  // of StepPlan::drafts, which holds those of all rows in their order
};

// The most tokens that are drafted for a row in one step.
inline constexpr int32_t kMaxDraftTokens = 32;

struct StepPlan {
  uint64_t number = 0;  // contiguous from 1
  std::vector<int32_t> retired;
  std::vector<RowBirth> born;
  std::vector<BlockDrop> drops;
  std::vector<BlockAppend> appends;
  std::vector<PlannedCopy> copies;
  std::vector<StepRow> rows;
  std::vector<TokenId> tokens;
  std::vector<TokenId> drafts;

  // Reserves memory for steps of that size, so that no later step allocates: rows, tokens, and
  // pages that one step appends or drops.
  void Reserve(size_t row_count, size_t token_count, size_t page_count) {
    retired.reserve(row_count);
    rows.reserve(row_count);
    drops.reserve(page_count);
    appends.reserve(page_count);
    tokens.reserve(token_count);
    drafts.reserve(token_count);
  }
  // Empties the lists and keeps their memory.
  void Clear() {
    retired.clear();
    born.clear();
    drops.clear();
    appends.clear();
    copies.clear();
    rows.clear();
    tokens.clear();
    drafts.clear();
  }
};

// The best tokens at a position, if requested, best first.
struct TopTokens {
  std::span<const TokenId> ids;
  std::span<const float> logprobs;
};
// Where a result keeps them: StepResult::top_ids and top_logprobs[begin, begin + count).
struct TopRange {
  uint32_t begin = 0;
  uint32_t count = 0;
};

// The result of one sampling row. Small: a step of a thousand rows reads a thousand of them.
struct SampledToken {
  uint64_t sequence = 0;
  int32_t row = 0;
  TokenId token = -1;    // −1: none could be chosen
  float logprob = 0.0f;  // if requested
  bool not_a_number = false;
  TopRange top;
};

// The result of one scored position.
struct ScoredToken {
  int32_t position = 0;  // position of the token, not of the one before it
  bool not_a_number = false;
  float logprob = 0.0f;
  int32_t rank = 0;  // from 1
  TopRange top;
};

struct StepResult {
  uint64_t number = 0;                // of the plan
  std::vector<SampledToken> samples;  // 1 + draft_count per sampling row, in the plan's order
  std::vector<ScoredToken> scores;    // one per scored position, in the plan's order
  std::vector<TokenId> top_ids;       // of all of these, one after another
  std::vector<float> top_logprobs;
  int64_t elapsed_us = 0;  // how long the device took

  TopTokens Top(const TopRange& range) const {
    return {std::span(top_ids).subspan(range.begin, range.count),
            std::span(top_logprobs).subspan(range.begin, range.count)};
  }
  TopRange AddTop(const TopTokens& top) {
    const TopRange range{static_cast<uint32_t>(top_ids.size()),
                         static_cast<uint32_t>(top.ids.size())};
    top_ids.insert(top_ids.end(), top.ids.begin(), top.ids.end());
    top_logprobs.insert(top_logprobs.end(), top.logprobs.begin(), top.logprobs.end());
    return range;
  }
  // Empties the lists and keeps their memory.
  void Clear() {
    samples.clear();
    scores.clear();
    top_ids.clear();
    top_logprobs.clear();
  }
};

// How many of a row's drafts equal the samples before them: the row's next tokens are the samples
// up to that number, itself included. Requires: one sample more than drafts.
inline size_t AcceptedDrafts(std::span<const TokenId> drafts,
                             std::span<const SampledToken> samples) {
  size_t accepted = 0;
  while (accepted < drafts.size() && samples[accepted].token == drafts[accepted]) ++accepted;
  return accepted;
}

}  // namespace quire
