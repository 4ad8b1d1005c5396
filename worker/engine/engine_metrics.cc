#include "worker/engine/engine_metrics.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "worker/core/refusal_names.h"

namespace quire {
namespace {

constexpr const char* kEndReasons[] = {"unspecified", "stop",    "length",
                                       "cancelled",   "failed",  "deadline",
                                       "router_lost", "drained", "slow_client"};
// In the order of FailureCause.
constexpr const char* kFailures[] = {"unspecified", "not_a_number", "no_token_allowed", "too_large",
                                     "no_answer",   "device_lost",  "constraint"};
static_assert(std::size(kFailures) == kFailureCauses);

// Seconds: the host's part of a step is well below a millisecond, the runner's may be a second.
std::vector<double> StepBuckets() {
  return {0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
          0.01,    0.02,    0.05,    0.1,    0.2,    0.5,    1,     2,     5};
}

MetricName StepSeconds(const char* phase) {
  return {
      "quire_worker_step_seconds",
      "Time of a step by phase: decode (the runner's, tokens of running rows alone), prefill (the "
      "runner's, with prompt tokens), host (plan, commit and report, the runner's left out).",
      {{"phase", phase}}};
}

}  // namespace

EngineMetrics::EngineMetrics(Metrics& metrics)
    : engine_(metrics, kEngineCounts),
      scheduler_(metrics, kSchedulerCounts),
      cache_(metrics, kCacheCounts),
      run_decode_(metrics.AddHistogram(StepSeconds("decode"), StepBuckets())),
      run_prefill_(metrics.AddHistogram(StepSeconds("prefill"), StepBuckets())),
      host_(metrics.AddHistogram(StepSeconds("host"), StepBuckets())),
      running_(metrics.AddGauge({"quire_worker_running_rows", "rows in the batch"})),
      waiting_(metrics.AddGauge({"quire_worker_waiting_requests", "choices that wait for a row"})),
      blocks_free_(
          metrics.AddGauge({"quire_worker_pages_free", "pages of the cache that are free"})),
      blocks_evictable_(metrics.AddGauge(
          {"quire_worker_pages_evictable", "pages that are cached and can be taken"})),
      blocks_held_(metrics.AddGauge({"quire_worker_pages_held", "pages that requests hold"})) {
  for (const char* reason : kEndReasons) {
    series_.push_back(
        {&metrics.AddCounter(
             {"quire_worker_choices_ended_total", "choices that have ended", {{"reason", reason}}}),
         0});
  }
  for (const std::string_view code : kRefusalNames) {
    series_.push_back({&metrics.AddCounter({"quire_worker_refused_total",
                                            "submits that were refused",
                                            {{"code", std::string(code)}}}),
                       0});
  }
  for (const char* cause : kFailures) {
    series_.push_back({&metrics.AddCounter({"quire_worker_failed_attempts_total",
                                            "attempts that failed here",
                                            {{"cause", cause}}}),
                       0});
  }
}

void EngineMetrics::AddFieldNames(Metrics& metrics, const std::string& model_name) {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  const Labels own = {{"model_name", model_name}, {"engine", "0"}};
  const auto with = [&own](const char* name, const char* value) {
    Labels labels = own;
    labels.emplace_back(name, value);
    return labels;
  };
  // Each with the series that it is a copy of.
  const std::pair<const Counter&, MetricName> copies[] = {
      {engine_.Of(&EngineTotals::prompt_tokens),
       {"vllm:prompt_tokens_total", "Prompt tokens.", own}},
      {scheduler_.Of(&SchedulerTotals::cached_tokens),
       {"vllm:prompt_tokens_cached_total", "Of these, what the cache held.", own}},
      {scheduler_.Of(&SchedulerTotals::computed_tokens),
       {"vllm:prompt_tokens_by_source_total", "Prompt tokens by where their keys came from.",
        with("source", "local_compute")}},
      {scheduler_.Of(&SchedulerTotals::cached_tokens),
       {"vllm:prompt_tokens_by_source_total", "", with("source", "local_cache_hit")}},
      {engine_.Of(&EngineTotals::generated_tokens),
       {"vllm:generation_tokens_total", "Tokens generated.", own}},
      {scheduler_.Of(&SchedulerTotals::preemptions),
       {"vllm:num_preemptions_total", "Preemptions.", own}},
      {cache_.Of(&CacheTotals::queried_tokens),
       {"vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", own}},
      {cache_.Of(&CacheTotals::hit_tokens),
       {"vllm:prefix_cache_hits_total", "Of these, tokens found.", own}}};
  const auto copy_of = [&](const Counter& from, const MetricName& name) {
    metrics.BeforeRender(
        [&copy = metrics.AddCounter(name), &from] { copy.Add(from.value() - copy.value()); });
  };
  for (const auto& [from, name] : copies) copy_of(from, name);
  constexpr size_t kFromEnd = kFailureCauses - static_cast<size_t>(FailureCause::kNotANumber);
  copy_of(*series_[series_.size() - kFromEnd].counter,
          {"vllm:corrupted_requests_total", "Requests whose logits were not numbers.", own});
  step_tokens_ =
      &metrics.AddHistogram({"vllm:iteration_tokens_total", "Tokens computed by a step.", own},
                            {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
  Gauge& running = metrics.AddGauge({"vllm:num_requests_running", "Choices in the batch.", own});
  Gauge& waiting = metrics.AddGauge({"vllm:num_requests_waiting", "Choices that wait.", own});
  Gauge& for_room =
      metrics.AddGauge({"vllm:num_requests_waiting_by_reason", "Choices that wait, by what for.",
                        with("reason", "capacity")});
  metrics.AddGauge({"vllm:num_requests_waiting_by_reason", "", with("reason", "deferred")});
  Gauge& usage = metrics.AddGauge(
      {"vllm:kv_cache_usage_perc", "Share of the cache that requests hold; 1 is all.", own});
  // What these capture lives as long as `metrics`.
  metrics.BeforeRender([&running, &waiting, &for_room, &rows = running_, &queue = waiting_] {
    running.Set(rows.value());
    waiting.Set(queue.value());
    for_room.Set(queue.value());
  });
  metrics.BeforeRender(
      [&usage, &free = blocks_free_, &evictable = blocks_evictable_, &held = blocks_held_] {
        const double all = free.value() + evictable.value() + held.value();
        usage.Set(all > 0 ? held.value() / all : 0);
      });
}

void EngineMetrics::AddDraftNames(Metrics& metrics, const std::string& model_name,
                                  int32_t max_drafts) {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  const Labels own = {{"model_name", model_name}, {"engine", "0"}};
  const std::pair<const Counter&, MetricName> copies[] = {
      {engine_.Of(&EngineTotals::draft_rows),
       {"vllm:spec_decode_num_drafts_total", "Drafts verified.", own}},
      {engine_.Of(&EngineTotals::draft_tokens),
       {"vllm:spec_decode_num_draft_tokens_total", "Tokens drafted.", own}},
      {engine_.Of(&EngineTotals::accepted_draft_tokens),
       {"vllm:spec_decode_num_accepted_tokens_total", "Of these, tokens accepted.", own}}};
  for (const auto& [from, name] : copies) {
    metrics.BeforeRender([&copy = metrics.AddCounter(name), &from = from] {
      copy.Add(from.value() - copy.value());
    });
  }
  for (int32_t place = 0; place < std::max(1, max_drafts); ++place) {
    Labels labels = own;
    labels.emplace_back("position", std::to_string(place));
    accepted_at_.push_back(
        {&metrics.AddCounter({"vllm:spec_decode_num_accepted_tokens_per_pos_total",
                              "Tokens accepted, by their place in the draft.", std::move(labels)}),
         0});
  }
}

void EngineMetrics::Raise(Series& series, uint64_t total) {
  QUIRE_CHECK_MSG(total >= series.published, "a total went down");
  series.counter->Add(total - series.published);
  series.published = total;
}

void EngineMetrics::Step(const StepSeen& step) {
  QUIRE_CHECK(step.prefill_tokens >= 0 && step.prefill_tokens <= step.tokens);
  (step.prefill_tokens > 0 ? run_prefill_ : run_decode_)
      .Observe(static_cast<double>(step.run_us) / 1e6);
  if (step_tokens_ != nullptr) step_tokens_->Observe(static_cast<double>(step.tokens));
}

void EngineMetrics::Host(int64_t host_us) { host_.Observe(static_cast<double>(host_us) / 1e6); }

void EngineMetrics::Publish(const EngineTotals& totals, const Load& load) {
  engine_.Raise(totals);
  scheduler_.Raise(totals.scheduler);
  cache_.Raise(totals.cache);
  size_t at = 0;
  for (const uint64_t count : totals.choices_ended) Raise(series_[at++], count);
  for (const uint64_t count : totals.refused) Raise(series_[at++], count);
  for (const uint64_t count : totals.failed) Raise(series_[at++], count);
  QUIRE_CHECK(at == series_.size());
  for (size_t i = 0; i < accepted_at_.size(); ++i) Raise(accepted_at_[i], totals.accepted_at[i]);
  running_.Set(load.running_rows);
  waiting_.Set(load.waiting_requests);
  blocks_free_.Set(static_cast<double>(load.free_blocks));
  blocks_evictable_.Set(static_cast<double>(load.evictable_blocks));
  blocks_held_.Set(static_cast<double>(load.held_blocks));
}

}  // namespace quire
