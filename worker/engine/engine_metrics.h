// What the engine has done since it started, counted as it happens, and the names of the counters
// for Prometheus.
//
// Owner: Engine (totals), main (metrics). Totals are counted independently of the usage that
// attempts carry, so that the two can be compared: when the engine is idle their sums are equal.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/metrics/counted_series.h"
#include "common/wire/values.h"
#include "worker/core/step_plan.h"
#include "worker/kv/kv_cache.h"
#include "worker/scheduler/scheduler_values.h"

namespace quire {

// Why an attempt has failed.
enum class FailureCause : uint8_t {
  kUnspecified,
  kNotANumber,      // the model's logits
  kNoTokenAllowed,  // with the request's limits
  kTooLarge,        // its tokens never fit in the cache
  kNoAnswer,        // the beam search found too few answers
  kDeviceLost,
  kConstraint,  // its grammar cannot continue
};
inline constexpr size_t kFailureCauses = 7;

struct EngineTotals {
  uint64_t steps = 0;
  uint64_t attempts = 0;  // accepted
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t discarded_tokens = 0;
  uint64_t probes = 0;
  uint64_t windows_used_up = 0;
  uint64_t constrained_rows = 0;
  uint64_t forced_tokens = 0;
  uint64_t accepted_forced_tokens = 0;
  uint64_t draft_rows = 0;
  uint64_t draft_tokens = 0;
  uint64_t accepted_draft_tokens = 0;
  uint64_t draft_evictions = 0;
  std::array<uint64_t, kMaxDraftTokens> accepted_at{};  // of these, by their place in the draft
  SchedulerTotals scheduler;                            // of kSchedulerCounts
  CacheTotals cache;
  std::array<uint64_t, 9> choices_ended{};        // by EndReason
  std::array<uint64_t, 11> refused{};             // by RefusalCode
  std::array<uint64_t, kFailureCauses> failed{};  // attempts, by FailureCause
};
inline constexpr Counted<EngineTotals> kEngineCounts[] = {
    {&EngineTotals::steps, "quire_worker_steps_total", "steps committed, idle probes left out"},
    {&EngineTotals::attempts, "quire_worker_attempts_total", "attempts accepted"},
    {&EngineTotals::prompt_tokens, "quire_worker_prompt_tokens_total",
     "prompt tokens of accepted attempts"},
    {&EngineTotals::generated_tokens, "quire_worker_generated_tokens_total", "tokens sampled"},
    {&EngineTotals::discarded_tokens, "quire_worker_discarded_tokens_total",
     "of these, past the end of their choice"},
    {&EngineTotals::probes, "quire_worker_idle_probes_total",
     "steps that only prove that the worker can"},
    {&EngineTotals::windows_used_up, "quire_worker_windows_used_up_total",
     "times that a choice waited for its taker"},
    {&EngineTotals::constrained_rows, "quire_worker_constrained_rows_total",
     "rows of steps that were sampled under a grammar"},
    {&EngineTotals::forced_tokens, "quire_worker_forced_tokens_total",
     "tokens that a grammar forces and that a step computed behind one another"},
    {&EngineTotals::accepted_forced_tokens, "quire_worker_accepted_forced_tokens_total",
     "of these, tokens that the samples confirmed"},
    {&EngineTotals::draft_rows, "quire_worker_draft_rows_total",
     "rows of steps that verified drafts"},
    {&EngineTotals::draft_tokens, "quire_worker_draft_tokens_total", "tokens drafted for them"},
    {&EngineTotals::accepted_draft_tokens, "quire_worker_accepted_draft_tokens_total",
     "of these, tokens that the samples confirmed"},
    {&EngineTotals::draft_evictions, "quire_worker_draft_evictions_total",
     "choices whose text or pages in the drafter gave way to others"}};

// A step that has been committed; idle probes are not counted.
struct StepSeen {
  int64_t tokens = 0;          // computed: decode rows and prefill
  int64_t prefill_tokens = 0;  // of these
  int64_t run_us = 0;          // time that the runner took
};

// Adds the growth of the totals to counters and sets the gauges. One writer: the engine's thread.
class EngineMetrics {
 public:
  // `metrics` outlives this object.
  explicit EngineMetrics(Metrics& metrics);

  // Adds the same metrics under vLLM's names (vllm/v1/metrics/loggers.py), copied when `metrics`
  // are rendered. Call it once, with the constructor's metrics.
  void AddFieldNames(Metrics& metrics, const std::string& model_name);
  // The same for those of speculation. Each place of a draft has a series, the first one always.
  void AddDraftNames(Metrics& metrics, const std::string& model_name, int32_t max_drafts);

  void Publish(const EngineTotals& totals, const Load& load);
  void Step(const StepSeen& step);
  // How long a pass of the engine's thread took besides the runner's time.
  void Host(int64_t host_us);

 private:
  // Each counter with the value that it has received so far.
  struct Series {
    Counter* counter = nullptr;
    uint64_t published = 0;
  };
  static void Raise(Series& series, uint64_t total);

  CountedSeries<EngineTotals> engine_;
  CountedSeries<SchedulerTotals> scheduler_;
  CountedSeries<CacheTotals> cache_;
  std::vector<Series> series_;       // those with labels, in the order of Publish
  std::vector<Series> accepted_at_;  // by place in the draft, under vLLM's name
  Histogram& run_decode_;
  Histogram& run_prefill_;
  Histogram& host_;
  Histogram* step_tokens_ = nullptr;  // under vLLM's name
  Gauge& running_;
  Gauge& waiting_;
  Gauge& blocks_free_;
  Gauge& blocks_evictable_;
  Gauge& blocks_held_;
};

}  // namespace quire
