// What the scheduler is told and what it tells: plain values.
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

// A position whose logits are wanted takes as much of the token budget as so many others: the
// logits of a large vocabulary cost about what the layers of a small model do.
inline constexpr int64_t kScoredTokenWeight = 32;

// Times that a sequence loses its row to others before it is protected.
inline constexpr int32_t kMaxPreemptions = 8;

// For so many tokens that another row is about to have computed an admission waits.
inline constexpr int64_t kMinAwaitedTokens = 32;

struct SchedulerOptions {
  int32_t max_num_seqs = 64;  // rows in a step
  int32_t max_num_batched_tokens = 2048;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  CacheShape cache;
  bool prefix_caching = false;
  uint64_t hash_mask = ~uint64_t{0};           // see KvCacheOptions
  std::function<void(int32_t)> on_page_freed;  // may be empty
};

// What a step may take. The first block of prefill is planned whatever it takes.
struct StepBudget {
  int64_t max_us = 0;  // 0: no limit
  StepTimes times;
};

// The largest number of tokens that a step holds: the token budget, or more where decode rows and
// one block of prefill need it.
int32_t MaxStepTokens(int32_t max_num_seqs, int32_t max_num_batched_tokens, int32_t block_size);

// One row of a plan, as its commit needs it.
struct PlannedRow {
  Sequence* sequence = nullptr;
  uint32_t incarnation = 0;
  int32_t q_len = 0;
  bool sample = false;
  bool blocks_due = false;  // a block fills up, or it is the prompt that is computed
  bool plain = false;       // none of these: one token, of a row whose prompt is computed
  int32_t score_count = 0;
};

// Field by field: a value put together elsewhere would be read back before it has been written.
inline void AddPlannedRow(std::vector<PlannedRow>& rows, Sequence& sequence, const StepRow& row) {
  PlannedRow& planned = rows.emplace_back();
  planned.sequence = &sequence;
  planned.incarnation = sequence.incarnation;
  planned.q_len = row.q_len;
  planned.sample = row.sample;
  const int64_t end = row.first_position + row.q_len;
  planned.blocks_due = end >= sequence.blocks_due || end <= sequence.prefill_end;
  planned.score_count = row.score_count;
}

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
