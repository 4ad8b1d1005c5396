// The scheduler's inputs and outputs: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/counted.h"
#include "worker/core/cache_shape.h"
#include "worker/core/step_plan.h"
#include "worker/scheduler/policy.h"
#include "worker/scheduler/sequence.h"
#include "worker/scheduler/step_time.h"

namespace quire {

// A position with logits uses as much of the token budget as this many others: the logits of a
// large vocabulary cost about as much as the layers of a small model.
inline constexpr int64_t kScoredTokenWeight = 32;

// How often a sequence loses its row to others before it is protected.
inline constexpr int32_t kMaxPreemptions = 8;

// An admission waits while another row is about to have computed at least this many of its tokens.
inline constexpr int64_t kMinAwaitedTokens = 32;

struct SchedulerOptions {
  int32_t max_num_seqs = 64;  // rows in a step
  int32_t max_num_batched_tokens = 2048;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  CacheShape cache;
  bool prefix_caching = false;
  // Rows know the token behind each that they compute, where there is one already.
  bool tells_next = false;
  uint64_t hash_mask = ~uint64_t{0};           // see KvCacheOptions
  std::function<void(int32_t)> on_page_freed;  // may be empty
};

// The limits of a step. The first block of prefill is planned even if it exceeds them.
struct StepBudget {
  int64_t max_us = 0;  // 0: no limit
  StepTimes times;
  int64_t free_drafts = 0;  // of each row, whatever the limit is: their time is not known yet
  bool drafts = true;       // rows may have drafts; else Plan does not look for any
};

// The largest number of tokens in a step: the token budget, or more where decode rows and one block
// of prefill need it.
int32_t MaxStepTokens(int32_t max_num_seqs, int32_t max_num_batched_tokens, int32_t block_size);

// One row of a plan, with what its commit needs.
struct PlannedRow {
  Sequence* sequence = nullptr;
  uint32_t incarnation = 0;
  int32_t q_len = 0;
  bool sample = false;
  bool blocks_due = false;  // a block fills up, or the row computes the prompt
  bool plain = false;       // neither: one token of a row whose prompt is computed
  int32_t score_count = 0;
  int32_t draft_count = 0;  // tokens that are computed and sampled after these, see StepRow
};

// Assigned field by field: a value built elsewhere would be read back before it has been written.
inline void AddPlannedRow(std::vector<PlannedRow>& rows, Sequence& sequence, const StepRow& row) {
  PlannedRow& planned = rows.emplace_back();
  planned.sequence = &sequence;
  planned.incarnation = sequence.incarnation;
  planned.q_len = row.q_len;
  planned.sample = row.sample;
  const int64_t end = row.first_position + row.q_len;
  planned.blocks_due = end >= sequence.blocks_due || end <= sequence.prefill_end;
  planned.score_count = row.score_count;
  planned.draft_count = 0;
}

// Blocks that steps in flight still name, of a sequence that left or that replaced them by copies.
struct LeavingBlocks {
  uint64_t last_plan = 0;
  int64_t pages = 0;
  SequenceBlocks blocks;
};

struct SchedulerLoad {
  uint32_t running_rows = 0;
  uint32_t waiting = 0;
  uint64_t waiting_prefill_tokens = 0;
  uint64_t running_prefill_tokens = 0;
};

// Work planned since the start; a planned step is always computed.
struct SchedulerTotals {
  uint64_t computed_tokens = 0;
  uint64_t recomputed_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t fairness_preemptions = 0;  // of these, so that another tenant got its share
  uint64_t cached_tokens = 0;         // prompt tokens that did not have to be computed
};
inline constexpr Counted<SchedulerTotals> kSchedulerCounts[] = {
    {&SchedulerTotals::computed_tokens, "quire_worker_computed_tokens_total",
     "tokens computed in prefill"},
    {&SchedulerTotals::recomputed_tokens, "quire_worker_recomputed_tokens_total",
     "of these, done again after a preemption or a resume"},
    {&SchedulerTotals::preemptions, "quire_worker_preemptions_total",
     "sequences that gave their pages up"},
    {&SchedulerTotals::cached_tokens, "quire_worker_cached_tokens_total",
     "prompt tokens of accepted attempts that did not have to be computed"}};

}  // namespace quire
